"""Requests that protobuf cannot read: finds out which field is to blame.

Left to itself gRPC answers such a request with INTERNAL, as if the fault were the server's.
Source: protobuf encoding, https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from seqserve_server.contract.errors import InvalidRequest

_VARINT, _LENGTH_DELIMITED = 0, 2


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands where a request would be."""

    error: InvalidRequest
    id: int | None = None
    """Where messages have an id, that of this one; None if not even that could be read."""


def tolerant(
    deserialize: Callable[[bytes], Message], descriptor: Descriptor
) -> Callable[[bytes], Message | Unreadable]:
    """Wraps a deserializer so that it gives :class:`Unreadable` instead of raising."""

    def read(data: bytes) -> Message | Unreadable:
        try:
            return deserialize(data)
        except Exception:
            return Unreadable(explain(data, descriptor), _id_of(data, descriptor))

    return read


def tolerant_of(
    method: str, handler: grpc.RpcMethodHandler[Any, Any]
) -> Callable[[bytes], Message | Unreadable]:
    """Gives the deserializer of a handler, made tolerant.

    Args:
        method: As gRPC writes it, ``/package.Service/Method``.
        handler: Of that method.
    """
    service, _, name = method[1:].rpartition("/")
    found = descriptor_pool.Default().FindMethodByName(f"{service}.{name}")
    assert handler.request_deserializer is not None
    return tolerant(handler.request_deserializer, found.input_type)


def explain(data: bytes, descriptor: Descriptor) -> InvalidRequest:
    """Says what is wrong with a message that protobuf refused."""
    try:
        field = _field_not_utf8(data, descriptor)
    except DecodeError:
        field = ""
    if field:
        return InvalidRequest(field, "is not valid UTF-8")
    return InvalidRequest("request", f"is not a valid {descriptor.full_name}")


def _entries(data: bytes) -> Any:
    # Read as a message without fields, everything is an unknown field, which keeps its bytes.
    return UnknownFieldSet(Empty.FromString(data))


def _id_of(data: bytes, descriptor: Descriptor) -> int | None:
    field = descriptor.fields_by_name.get("id")
    if field is None:
        return None
    try:
        numbers = [
            int(entry.data)
            for entry in _entries(data)
            if (entry.field_number, entry.wire_type) == (field.number, _VARINT)
        ]
    except DecodeError:
        return None
    # On the wire 0 is left out, and of several the last one counts.
    return numbers[-1] if numbers else 0


def _field_not_utf8(data: bytes, descriptor: Descriptor) -> str:
    for entry in _entries(data):
        field = descriptor.fields_by_number.get(entry.field_number)
        if field is None or entry.wire_type != _LENGTH_DELIMITED:
            continue
        if field.type == FieldDescriptor.TYPE_STRING and not _is_utf8(entry.data):
            return str(field.name)
        if field.message_type is not None:
            inner = _field_not_utf8(entry.data, field.message_type)
            if inner:
                return f"{field.name}.{inner}"
    return ""


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
