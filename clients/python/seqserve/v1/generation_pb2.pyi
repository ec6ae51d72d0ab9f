from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_EOS: _ClassVar[StopReason]
    STOP_REASON_LENGTH: _ClassVar[StopReason]
    STOP_REASON_STOP_SEQUENCE: _ClassVar[StopReason]
    STOP_REASON_TIME_LIMIT: _ClassVar[StopReason]
    STOP_REASON_CANCELLED: _ClassVar[StopReason]
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_EOS: StopReason
STOP_REASON_LENGTH: StopReason
STOP_REASON_STOP_SEQUENCE: StopReason
STOP_REASON_TIME_LIMIT: StopReason
STOP_REASON_CANCELLED: StopReason

class GenerateRequest(_message.Message):
    __slots__ = ("model", "version", "source", "options")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    source: str
    options: GenerationOptions
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., source: _Optional[str] = ..., options: _Optional[_Union[GenerationOptions, _Mapping]] = ...) -> None: ...

class GenerationOptions(_message.Message):
    __slots__ = ("max_decoding_length", "min_decoding_length")
    MAX_DECODING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MIN_DECODING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    max_decoding_length: int
    min_decoding_length: int
    def __init__(self, max_decoding_length: _Optional[int] = ..., min_decoding_length: _Optional[int] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("model", "version", "hypotheses", "source_tokens", "generated_tokens", "timings")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    source_tokens: int
    generated_tokens: int
    timings: Timings
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., source_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ...) -> None: ...

class Hypothesis(_message.Message):
    __slots__ = ("text", "tokens", "token_ids", "score", "stop_reason")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    score: float
    stop_reason: StopReason
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ..., token_ids: _Optional[_Iterable[int]] = ..., score: _Optional[float] = ..., stop_reason: _Optional[_Union[StopReason, str]] = ...) -> None: ...

class GenerateStreamResponse(_message.Message):
    __slots__ = ("piece", "result")
    PIECE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    piece: Piece
    result: GenerateResponse
    def __init__(self, piece: _Optional[_Union[Piece, _Mapping]] = ..., result: _Optional[_Union[GenerateResponse, _Mapping]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("text", "token_ids")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_ms", "encode_ms", "decode_ms", "first_token_ms", "total_ms")
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_MS_FIELD_NUMBER: _ClassVar[int]
    DECODE_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    queue_ms: float
    encode_ms: float
    decode_ms: float
    first_token_ms: float
    total_ms: float
    def __init__(self, queue_ms: _Optional[float] = ..., encode_ms: _Optional[float] = ..., decode_ms: _Optional[float] = ..., first_token_ms: _Optional[float] = ..., total_ms: _Optional[float] = ...) -> None: ...
