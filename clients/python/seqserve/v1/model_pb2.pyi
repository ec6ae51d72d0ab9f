from seqserve.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_STATE_UNSPECIFIED: _ClassVar[ModelState]
    MODEL_STATE_READY: _ClassVar[ModelState]
    MODEL_STATE_LOADING: _ClassVar[ModelState]
    MODEL_STATE_FAILED: _ClassVar[ModelState]
    MODEL_STATE_DRAINING: _ClassVar[ModelState]
    MODEL_STATE_AVAILABLE: _ClassVar[ModelState]
    MODEL_STATE_RESTARTING: _ClassVar[ModelState]
MODEL_STATE_UNSPECIFIED: ModelState
MODEL_STATE_READY: ModelState
MODEL_STATE_LOADING: ModelState
MODEL_STATE_FAILED: ModelState
MODEL_STATE_DRAINING: ModelState
MODEL_STATE_AVAILABLE: ModelState
MODEL_STATE_RESTARTING: ModelState

class ListModelsRequest(_message.Message):
    __slots__ = ("with_pairs",)
    WITH_PAIRS_FIELD_NUMBER: _ClassVar[int]
    with_pairs: bool
    def __init__(self, with_pairs: bool = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "pairs")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    pairs: _containers.RepeatedCompositeFieldContainer[LanguagePair]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[LanguagePair, _Mapping]]] = ...) -> None: ...

class LanguagePair(_message.Message):
    __slots__ = ("source_language", "target_language", "models", "pivot_language")
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PIVOT_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    source_language: str
    target_language: str
    models: _containers.RepeatedScalarFieldContainer[str]
    pivot_language: str
    def __init__(self, source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., pivot_language: _Optional[str] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("model", "version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("model", "version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class LoadModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class UnloadModelRequest(_message.Message):
    __slots__ = ("model", "version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class UnloadModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: Model
    def __init__(self, model: _Optional[_Union[Model, _Mapping]] = ...) -> None: ...

class SetTrafficRequest(_message.Message):
    __slots__ = ("model", "weights")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    weights: _containers.ScalarMap[int, int]
    def __init__(self, model: _Optional[str] = ..., weights: _Optional[_Mapping[int, int]] = ...) -> None: ...

class SetTrafficResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class ListGlossariesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGlossariesResponse(_message.Message):
    __slots__ = ("glossaries",)
    GLOSSARIES_FIELD_NUMBER: _ClassVar[int]
    glossaries: _containers.RepeatedCompositeFieldContainer[Glossary]
    def __init__(self, glossaries: _Optional[_Iterable[_Union[Glossary, _Mapping]]] = ...) -> None: ...

class GetGlossaryRequest(_message.Message):
    __slots__ = ("glossary", "source_language", "target_language")
    GLOSSARY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    glossary: str
    source_language: str
    target_language: str
    def __init__(self, glossary: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ...) -> None: ...

class GetGlossaryResponse(_message.Message):
    __slots__ = ("glossary", "entries")
    GLOSSARY_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    glossary: Glossary
    entries: _containers.RepeatedCompositeFieldContainer[_generation_pb2.Term]
    def __init__(self, glossary: _Optional[_Union[Glossary, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[_generation_pb2.Term, _Mapping]]] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetUsageResponse(_message.Message):
    __slots__ = ("name", "usages")
    NAME_FIELD_NUMBER: _ClassVar[int]
    USAGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    usages: _containers.RepeatedCompositeFieldContainer[Usage]
    def __init__(self, name: _Optional[str] = ..., usages: _Optional[_Iterable[_Union[Usage, _Mapping]]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("period", "ends_s", "requests", "characters", "tokens", "max_requests", "max_characters", "max_tokens")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ENDS_S_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MAX_CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    period: str
    ends_s: int
    requests: int
    characters: int
    tokens: int
    max_requests: int
    max_characters: int
    max_tokens: int
    def __init__(self, period: _Optional[str] = ..., ends_s: _Optional[int] = ..., requests: _Optional[int] = ..., characters: _Optional[int] = ..., tokens: _Optional[int] = ..., max_requests: _Optional[int] = ..., max_characters: _Optional[int] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class Glossary(_message.Message):
    __slots__ = ("name", "source_language", "target_language", "entry_count", "modified_s", "fault")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_S_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    source_language: str
    target_language: str
    entry_count: int
    modified_s: int
    fault: str
    def __init__(self, name: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., entry_count: _Optional[int] = ..., modified_s: _Optional[int] = ..., fault: _Optional[str] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "version", "state", "state_reason", "is_default", "precision", "provider", "max_source_length", "max_target_length", "vocabulary_size", "description", "licence", "traffic_share", "source_languages", "target_languages", "has_shortlist", "slots", "slots_in_use", "queue_depth")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_REASON_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MAX_SOURCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_TARGET_LENGTH_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LICENCE_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_SHARE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    HAS_SHORTLIST_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_IN_USE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    state: ModelState
    state_reason: str
    is_default: bool
    precision: str
    provider: str
    max_source_length: int
    max_target_length: int
    vocabulary_size: int
    description: str
    licence: str
    traffic_share: float
    source_languages: _containers.RepeatedScalarFieldContainer[str]
    target_languages: _containers.RepeatedScalarFieldContainer[str]
    has_shortlist: bool
    slots: int
    slots_in_use: int
    queue_depth: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., state: _Optional[_Union[ModelState, str]] = ..., state_reason: _Optional[str] = ..., is_default: bool = ..., precision: _Optional[str] = ..., provider: _Optional[str] = ..., max_source_length: _Optional[int] = ..., max_target_length: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., description: _Optional[str] = ..., licence: _Optional[str] = ..., traffic_share: _Optional[float] = ..., source_languages: _Optional[_Iterable[str]] = ..., target_languages: _Optional[_Iterable[str]] = ..., has_shortlist: bool = ..., slots: _Optional[int] = ..., slots_in_use: _Optional[int] = ..., queue_depth: _Optional[int] = ...) -> None: ...
