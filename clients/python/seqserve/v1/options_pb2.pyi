from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor
DECODING_FIELD_NUMBER: _ClassVar[int]
decoding: _descriptor.FieldDescriptor

class DecodingOption(_message.Message):
    __slots__ = ("group", "help", "default", "gt", "gte", "lt", "lte", "max_items", "choices")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HELP_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    group: str
    help: str
    default: float
    gt: float
    gte: float
    lt: float
    lte: float
    max_items: int
    choices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., help: _Optional[str] = ..., default: _Optional[float] = ..., gt: _Optional[float] = ..., gte: _Optional[float] = ..., lt: _Optional[float] = ..., lte: _Optional[float] = ..., max_items: _Optional[int] = ..., choices: _Optional[_Iterable[str]] = ...) -> None: ...
