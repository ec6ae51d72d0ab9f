from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.calls import details, failure
from tests.unit.server.front.service import Service

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import Unreadable
from seqserve_server.front.call.wire import encoded_list, salvaged, tolerant

REQUEST = generation_pb2.GenerateRequest
BULK = generation_pb2.GenerateBulkRequest
BAD = b"\xff\xfe\xfa"
# Tags of fields.
MODEL, SOURCE, OPTIONS = b"\x0a", b"\x1a", b"\x22"
ID, REQUEST_OF_BULK, MORE = b"\x08", b"\x12", b"\x1a"


def text(tag: bytes, content: bytes) -> bytes:
    return tag + bytes([len(content)]) + content


@pytest.mark.parametrize(
    "data",
    [
        text(SOURCE, BAD),
        text(MODEL, BAD) + text(SOURCE, b"good"),
        text(SOURCE, "Köln".encode("latin-1")),
        # A lone surrogate, which strings of JavaScript and Java can hold.
        text(SOURCE, b"\xed\xa0\xbd"),
        b"\x1a\x05ab",
        b"\xff",
        text(OPTIONS, b"\x08"),
        b"\x1b",
    ],
)
@pytest.mark.parametrize(("shape", "method"), [("unary_unary", ""), ("unary_stream", "Stream")])
async def test_malformed_request_is_an_invalid_argument(
    service: Service, shape: str, method: str, data: bytes
) -> None:
    call = getattr(service.channel, shape)(f"/seqserve.v1.GenerationService/Generate{method}")
    error = await failure(call(data))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    (violation,) = details(error, BadRequest).field_violations
    assert violation.field == "request"
    assert "UTF-8" in violation.description and "GenerateRequest" in violation.description


@given(st.binary(max_size=40), st.sampled_from([REQUEST, generation_pb2.GenerateBatchRequest]))
def test_any_bytes_give_a_request_or_a_reason(data: bytes, kind: Any) -> None:
    read = tolerant(kind.FromString)(data)
    assert isinstance(read, kind) or (isinstance(read, Unreadable) and read.reason)


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
def test_id_of_a_malformed_bulk_request_is_read_if_possible(data: bytes, id_: int | None) -> None:
    unreadable = tolerant(BULK.FromString)(data)
    assert isinstance(unreadable, Unreadable)
    if id_ is None:
        with pytest.raises(Unreadable):
            salvaged(unreadable)
    else:
        [(found, is_sound)] = salvaged(unreadable)
        assert (found.id, is_sound) == (id_, False)


def test_requests_beside_a_malformed_one_are_read() -> None:
    sound = BULK(id=9, request=REQUEST(source="good"))
    bad = ID + b"\x08" + text(REQUEST_OF_BULK, text(SOURCE, BAD))
    data = bad + text(MORE, sound.SerializeToString()) + text(MORE, ID + b"\x03")
    unreadable = tolerant(BULK.FromString)(data)
    assert isinstance(unreadable, Unreadable)
    assert [(found.id, is_sound) for found, is_sound in salvaged(unreadable)] == [
        (8, False), (9, True), (3, True)
    ]  # fmt: skip
    assert salvaged(unreadable)[1][0] == sound


def test_encoded_messages_are_joined_to_a_list() -> None:
    outcomes = [
        generation_pb2.Outcome(failure=generation_pb2.Failure(message="x" * length))
        for length in (0, 5, 127, 128, 40_000)
    ]
    data = encoded_list(1, [outcome.SerializeToString() for outcome in outcomes])
    assert generation_pb2.GenerateBatchResponse.FromString(data).outcomes == outcomes
    assert encoded_list(1, []) == b""
