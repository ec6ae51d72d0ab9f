"""Random requests, drawn from the descriptors that a server gives by reflection.

Every RPC is found by reflection and every field by its descriptor, so that a new one is tried at
once. Most fields of a request are valid, or else only the first check would ever be reached; one to
four are random, or the bytes are damaged.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from hypothesis import strategies as st

from seqserve.v1 import generation_pb2

Strategy = st.SearchStrategy[Any]

_MOST_RANDOM = 4
_MOST_DEPTH = 4
_HEAVIEST = 8
_TIMES = {True: (1, 1, 1, 2, 20), False: (1, 1, 1, 9, 550)}
"""How often parts of a list are repeated, by whether they are messages."""
_LONG = 10_000

_OPTIONS = [field.name for field in generation_pb2.GenerationOptions.DESCRIPTOR.fields]
_WORDS = ["The coffee", "Nobody", "</s>", "<unk>", "▁the", "a", "Grüße 🙂", "."]

_Kind = FieldDescriptor

VALID: dict[tuple[str, int], list[Any]] = {
    ("source", _Kind.TYPE_STRING): _WORDS[:2],
    ("sources", _Kind.TYPE_STRING): _WORDS,
    ("target", _Kind.TYPE_STRING): ["music.", ""],
    ("version", _Kind.TYPE_UINT32): [0, 1],
    ("service", _Kind.TYPE_STRING): ["", "seqserve.v1.GenerationService"],
    ("list_services", _Kind.TYPE_STRING): [""],
    ("request", _Kind.TYPE_MESSAGE): [],
    ("inputs", _Kind.TYPE_MESSAGE): [],
    ("contents", _Kind.TYPE_MESSAGE): [],
    ("bytes_contents", _Kind.TYPE_BYTES): [b"Nobody"],
    ("datatype", _Kind.TYPE_STRING): ["BYTES"],
    ("shape", _Kind.TYPE_INT64): [1],
}
"""Valid values of a field of this name and type; of a message, of the fields within it."""
_TENSOR_NAME = ("name", _Kind.TYPE_STRING), ["text"]


@dataclass(frozen=True, slots=True)
class Rpc:
    """A method of the server."""

    path: str
    request: Descriptor
    client_streaming: bool
    server_streaming: bool

    def call(self, channel: Any, requests: list[bytes], **given: Any) -> list[bytes]:
        """Sends requests as they are, of which a method that takes one gets the first.

        Raises:
            grpc.RpcError: The call failed.
        """
        kind = f"{_SHAPES[self.client_streaming]}_{_SHAPES[self.server_streaming]}"
        multi = getattr(channel, kind)(self.path)
        answer = multi(iter(requests) if self.client_streaming else requests[0], **given)
        return list(answer) if self.server_streaming else [answer]

    @property
    def weight(self) -> int:
        return min(1 + _size(self.request) // 2, _HEAVIEST)

    def message(self) -> Message:
        made: Message = message_factory.GetMessageClass(self.request)()
        return made


_SHAPES = {False: "unary", True: "stream"}


def rpcs_of(channel: Any) -> list[Rpc]:
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    return [
        Rpc(
            f"/{service}/{method.name}",
            method.input_type,
            method.client_streaming,
            method.server_streaming,
        )
        for service in database.get_services()
        for method in pool.FindServiceByName(service).methods
    ]


# ---- messages


_TEXTS = st.one_of(
    st.sampled_from(["", " \t\n", "\0", "\x1b[31m\r\n", "\u202e\u2028\ufeff", "e" + "\u0301" * 99]),
    st.sampled_from([*_WORDS, *_OPTIONS[:3], "1", "stream", "../..", "[[1]]", '["a"]', "1e999"]),
    st.sampled_from(["a" * _LONG, "🙂" * _LONG, "a 1 " * 99]),
    st.text(max_size=20),
)
_INTEGERS = st.sampled_from([0, 1, 2, 3, 5, 7, 63, 64, 1024, 1025])
_FLOATS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 1.0, 0.5, 1e-45, 3.4e38, float("nan"), float("inf"), float("-inf")]
    ),
    st.floats(width=32),
)
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-1, 99),
}
_BYTES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"\xff\xff\xff\xff", b"\xff" * _LONG]),
    st.builds(
        lambda length, text: struct.pack("<I", length) + text,
        st.sampled_from([0, 1, 6, 7, 1 << 31, (1 << 32) - 1]),
        st.sampled_from([b"Nobody", b"", b"\xff"]),
    ),
)


def _scalars(field: FieldDescriptor) -> Strategy:
    if field.cpp_type in _RANGES:
        least, most = _RANGES[field.cpp_type]
        return st.one_of(
            _INTEGERS.filter(lambda number: number <= most), st.sampled_from([least, most])
        )
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _BYTES
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _TEXTS
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    return _FLOATS


@cache
def _values(field: FieldDescriptor, depth: int) -> Strategy:
    if field.message_type is not None:
        return _parts(field.message_type, depth + 1)
    return _scalars(field)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@st.composite
def _random_field(draw: st.DrawFn, field: FieldDescriptor, depth: int) -> Any:
    if _is_map(field) and field.message_type is not None:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        keys = (
            st.one_of(st.sampled_from(_OPTIONS), _TEXTS)
            if key.type == _Kind.TYPE_STRING
            else _scalars(key)
        )
        return draw(st.dictionaries(keys, _values(value, depth), max_size=3))
    if not field.is_repeated:
        return draw(_values(field, depth))
    # Drawing them one by one would take long.
    few = draw(st.lists(_values(field, depth), min_size=1, max_size=2))
    if field.message_type is field.containing_type:
        # Each may have more of its own, so that many would soon be too many.
        return few
    return few * draw(st.sampled_from(_TIMES[field.message_type is not None]))


def _valid(field: FieldDescriptor, depth: int) -> Strategy | None:
    """Draws valid values; None if the field may be omitted."""
    # The name of a model may be omitted, that of a tensor may not.
    choices = (VALID | dict([_TENSOR_NAME]) if depth else VALID).get((field.name, field.type))
    if choices is None:
        return None
    if field.message_type is not None:
        one = _parts(field.message_type, depth + 1, is_random=False)
    else:
        one = st.sampled_from(choices)
    return one.map(lambda value: [value]) if field.is_repeated else one


def weighted(fields: Iterable[FieldDescriptor]) -> list[FieldDescriptor]:
    """Repeats fields with many subfields, so that those are drawn as often."""
    return [field for field in fields for _ in range(min(1 + _size(field.message_type), _HEAVIEST))]


@cache
def _size(kind: Descriptor | None, within: frozenset[str] = frozenset()) -> int:
    """Counts the fields within a message; those of a message within itself count once."""
    if kind is None or kind.full_name in within:
        return 0
    within |= {kind.full_name}
    return sum(1 + _size(field.message_type, within) for field in kind.fields)


@cache
def _parts(kind: Descriptor, depth: int = 0, is_random: bool = True) -> Strategy:
    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        valid = {
            field.name: draw(strategy)
            for field in kind.fields
            if (strategy := _valid(field, depth)) is not None
        }
        if not is_random or depth > _MOST_DEPTH or not kind.fields:
            return valid
        chosen = draw(st.lists(st.sampled_from(weighted(kind.fields)), max_size=_MOST_RANDOM))
        return valid | {
            field.name: draw(_random_field(field, depth)) for field in dict.fromkeys(chosen)
        }

    return build()


def filled(message: Any, parts: dict[str, Any]) -> Any:
    """Fills a message; of the fields of a oneof the last one stays."""
    for name, value in parts.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if _is_map(field):
            _fill_map(getattr(message, name), field, value)
        elif field.message_type is None:
            if field.is_repeated:
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        elif field.is_repeated:
            for part in value:
                filled(getattr(message, name).add(), part)
        else:
            part = getattr(message, name)
            part.SetInParent()
            filled(part, value)
    return message


def _fill_map(entries: Any, field: FieldDescriptor, values: dict[Any, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            filled(entries[key], value)
        else:
            entries[key] = value


def messages(rpc: Rpc) -> st.SearchStrategy[bytes]:
    """Draws requests in which every field has its type, but any value."""
    return _parts(rpc.request).map(lambda parts: filled(rpc.message(), parts).SerializeToString())


# ---- bytes


def _flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place % len(changed)] ^= 1 << bit
    return bytes(changed)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _nested(number: int, depth: int) -> bytes:
    """Draws a field nested in itself many times, as messages or as groups."""
    data = b""
    for _ in range(depth):
        data = _varint(number << 3 | 2) + _varint(len(data)) + data
    return data


_PLACES = st.integers(0, 1 << 12)
_NUMBERS = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 16, 19_000, 999, (1 << 29) - 1])
_SNIPPETS = st.one_of(
    st.binary(min_size=1, max_size=12),
    # An unknown field, or one of a wrong type.
    st.builds(
        lambda number, kind: _varint(number << 3 | kind) + b"\x01" * 8, _NUMBERS, st.integers(0, 7)
    ),
    # A field whose length exceeds the message.
    st.builds(
        lambda number, length: _varint(number << 3 | 2) + _varint(length),
        _NUMBERS,
        st.sampled_from([1 << 10, (1 << 31) - 1, 1 << 32, (1 << 64) - 1]),
    ),
    st.builds(_nested, _NUMBERS, st.sampled_from([2, 99, 101, 2000])),
    st.builds(lambda number: _varint(number << 3 | 3) * 999, _NUMBERS),
    st.builds(lambda number: _varint(number << 3 | 2) + b"\x02\xc3\x28", _NUMBERS),
    st.just(b"\x80" * 11),
)

_Change = Callable[[bytes], bytes]
_CHANGES: st.SearchStrategy[_Change] = st.one_of(
    st.builds(
        lambda place, bit: lambda data: _flipped(data, place, bit) if data else data,
        _PLACES,
        st.integers(0, 7),
    ),
    st.builds(lambda place: lambda data: data[: place % (len(data) + 1)], _PLACES),
    st.builds(lambda place: lambda data: data + data[place % (len(data) + 1) :], _PLACES),
    st.builds(
        lambda place, more: (
            lambda data: data[: place % (len(data) + 1)] + more + data[place % (len(data) + 1) :]
        ),
        _PLACES,
        _SNIPPETS,
    ),
    st.builds(lambda more: lambda data: data + more, _SNIPPETS),
    st.builds(lambda more: lambda data: more, st.binary(max_size=60)),
)


@st.composite
def damaged(draw: st.DrawFn, rpc: Rpc) -> bytes:
    data: bytes = draw(messages(rpc))
    for change in draw(st.lists(_CHANGES, min_size=1, max_size=3)):
        data = change(data)
    return data


# ---- metadata

_SAYS = st.one_of(
    st.sampled_from(["", "a", "a" * 2000, "Bearer", "Bearer  x", "Basic Og==", "é".encode().hex()]),
    st.sampled_from(
        [f"00-{'0' * 32}-{'0' * 16}-ff", f"00-{'f' * 32}-{'1' * 16}-01", "00-", "=,=;"]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80),
)
_KEYS = st.sampled_from(
    ["x-request-id", "traceparent", "tracestate", "authorization", "x-caller", "user-agent", "te"]
)


def metadata() -> st.SearchStrategy[list[tuple[str, str | bytes]]]:
    texts = st.tuples(_KEYS, _SAYS)
    others = st.tuples(st.sampled_from(["x-request-id-bin", "any-bin"]), st.binary(max_size=99))
    return st.lists(st.one_of(texts, others), max_size=6)
