from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Model(_message.Message):
    __slots__ = ("pieces", "trainer_spec", "normalizer_spec", "denormalizer_spec")
    class Piece(_message.Message):
        __slots__ = ("piece", "score", "type")
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            NORMAL: _ClassVar[Model.Piece.Type]
            UNKNOWN: _ClassVar[Model.Piece.Type]
            CONTROL: _ClassVar[Model.Piece.Type]
            USER_DEFINED: _ClassVar[Model.Piece.Type]
            UNUSED: _ClassVar[Model.Piece.Type]
            BYTE: _ClassVar[Model.Piece.Type]
        NORMAL: Model.Piece.Type
        UNKNOWN: Model.Piece.Type
        CONTROL: Model.Piece.Type
        USER_DEFINED: Model.Piece.Type
        UNUSED: Model.Piece.Type
        BYTE: Model.Piece.Type
        PIECE_FIELD_NUMBER: _ClassVar[int]
        SCORE_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        piece: str
        score: float
        type: Model.Piece.Type
        def __init__(self, piece: _Optional[str] = ..., score: _Optional[float] = ..., type: _Optional[_Union[Model.Piece.Type, str]] = ...) -> None: ...
    class Trainer(_message.Message):
        __slots__ = ("model_type", "treat_whitespace_as_suffix", "byte_fallback")
        class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNIGRAM: _ClassVar[Model.Trainer.Type]
            BPE: _ClassVar[Model.Trainer.Type]
            WORD: _ClassVar[Model.Trainer.Type]
            CHAR: _ClassVar[Model.Trainer.Type]
        UNIGRAM: Model.Trainer.Type
        BPE: Model.Trainer.Type
        WORD: Model.Trainer.Type
        CHAR: Model.Trainer.Type
        MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
        TREAT_WHITESPACE_AS_SUFFIX_FIELD_NUMBER: _ClassVar[int]
        BYTE_FALLBACK_FIELD_NUMBER: _ClassVar[int]
        model_type: Model.Trainer.Type
        treat_whitespace_as_suffix: bool
        byte_fallback: bool
        def __init__(self, model_type: _Optional[_Union[Model.Trainer.Type, str]] = ..., treat_whitespace_as_suffix: bool = ..., byte_fallback: bool = ...) -> None: ...
    class Normalizer(_message.Message):
        __slots__ = ("precompiled_charsmap", "add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")
        PRECOMPILED_CHARSMAP_FIELD_NUMBER: _ClassVar[int]
        ADD_DUMMY_PREFIX_FIELD_NUMBER: _ClassVar[int]
        REMOVE_EXTRA_WHITESPACES_FIELD_NUMBER: _ClassVar[int]
        ESCAPE_WHITESPACES_FIELD_NUMBER: _ClassVar[int]
        precompiled_charsmap: bytes
        add_dummy_prefix: bool
        remove_extra_whitespaces: bool
        escape_whitespaces: bool
        def __init__(self, precompiled_charsmap: _Optional[bytes] = ..., add_dummy_prefix: bool = ..., remove_extra_whitespaces: bool = ..., escape_whitespaces: bool = ...) -> None: ...
    PIECES_FIELD_NUMBER: _ClassVar[int]
    TRAINER_SPEC_FIELD_NUMBER: _ClassVar[int]
    NORMALIZER_SPEC_FIELD_NUMBER: _ClassVar[int]
    DENORMALIZER_SPEC_FIELD_NUMBER: _ClassVar[int]
    pieces: _containers.RepeatedCompositeFieldContainer[Model.Piece]
    trainer_spec: Model.Trainer
    normalizer_spec: Model.Normalizer
    denormalizer_spec: Model.Normalizer
    def __init__(self, pieces: _Optional[_Iterable[_Union[Model.Piece, _Mapping]]] = ..., trainer_spec: _Optional[_Union[Model.Trainer, _Mapping]] = ..., normalizer_spec: _Optional[_Union[Model.Normalizer, _Mapping]] = ..., denormalizer_spec: _Optional[_Union[Model.Normalizer, _Mapping]] = ...) -> None: ...
