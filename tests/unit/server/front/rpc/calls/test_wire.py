"""Bytes that are no message: the caller's fault, with the field where one is to blame."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.rpc.service import Service, details, failure

from seqserve.v1 import generation_pb2
from seqserve_server.front.rpc.calls.wire import Unreadable, explain, tolerant

REQUEST = generation_pb2.GenerateRequest
DESCRIPTOR: Any = REQUEST.DESCRIPTOR
BAD = b"\xff\xfe\xfa"

MODEL, SOURCE, OPTIONS = b"\x0a", b"\x1a", b"\x22"


def text(tag: bytes, content: bytes) -> bytes:
    return tag + bytes([len(content)]) + content


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (text(SOURCE, BAD), "source"),
        (text(MODEL, BAD) + text(SOURCE, b"good"), "model"),
        (text(MODEL, b"good") + text(SOURCE, BAD), "source"),
        (text(SOURCE, "Köln".encode("latin-1")), "source"),
        # A lone surrogate, as JavaScript's and Java's strings may hold one.
        (text(SOURCE, b"\xed\xa0\xbd"), "source"),
        (b"\x1a\x05ab", "request"),
        (b"\xff", "request"),
        (text(OPTIONS, b"\x08"), "request"),
        (b"\x1b", "request"),
    ],
)
async def test_blame(service: Service, data: bytes, field: str) -> None:
    call = service.channel.unary_unary("/seqserve.v1.GenerationService/Generate")
    error = await failure(call(data))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    (violation,) = details(error, BadRequest).field_violations
    assert violation.field == field
    assert "UTF-8" in violation.description or field == "request"


async def test_blame_in_a_stream(service: Service) -> None:
    call = service.channel.unary_stream("/seqserve.v1.GenerationService/GenerateStream")
    error = await failure(call(text(SOURCE, BAD)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error, BadRequest).field_violations[0].field == "source"


def test_field_of_an_inner_message() -> None:
    inner = text(b"\x0a", BAD)
    hypotheses = text(b"\x1a", inner)
    descriptor: Any = generation_pb2.GenerateResponse.DESCRIPTOR
    error = explain(hypotheses, descriptor)
    assert error.field == "hypotheses.text"


@given(st.binary(max_size=40), st.sampled_from([REQUEST, generation_pb2.GenerateBulkRequest]))
def test_any_bytes_are_read_or_explained(data: bytes, kind: Any) -> None:
    read = tolerant(kind.FromString, kind.DESCRIPTOR)(data)
    assert isinstance(read, kind) or (isinstance(read, Unreadable) and read.error.field)


BULK = generation_pb2.GenerateBulkRequest
ID, REQUEST_OF_BULK = b"\x08", b"\x12"


@pytest.mark.parametrize(
    ("data", "id_"),
    [
        (ID + b"\x07" + text(REQUEST_OF_BULK, text(SOURCE, BAD)), 7),
        (text(REQUEST_OF_BULK, text(SOURCE, BAD)) + ID + b"\x07" + ID + b"\xac\x02", 300),
        (text(REQUEST_OF_BULK, text(SOURCE, BAD)), 0),
        (text(b"\x0a", b"7") + text(REQUEST_OF_BULK, text(SOURCE, BAD)), 0),
        (ID + b"\x07\xff", None),
    ],
)
def test_the_id_of_what_cannot_be_read(data: bytes, id_: int | None) -> None:
    descriptor: Any = BULK.DESCRIPTOR
    unreadable = tolerant(BULK.FromString, descriptor)(data)
    assert isinstance(unreadable, Unreadable)
    assert unreadable.id == id_
    assert unreadable.error.field == ("request.source" if id_ is not None else "request")


def test_what_has_no_field_for_an_id() -> None:
    unreadable = tolerant(REQUEST.FromString, DESCRIPTOR)(text(SOURCE, BAD))
    assert isinstance(unreadable, Unreadable) and unreadable.id is None


def test_good_bytes_are_read() -> None:
    request = REQUEST(source="good")
    assert tolerant(REQUEST.FromString, DESCRIPTOR)(request.SerializeToString()) == request
