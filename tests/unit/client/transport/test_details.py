"""The client's decoder against the encoder of googleapis, which the server uses."""

from __future__ import annotations

import pytest
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from seqserve._transport.status import Details, read_details


def encode(*attached: Message) -> bytes:
    status = status_pb2.Status(code=3, message="no")
    for message in attached:
        detail = any_pb2.Any()
        detail.Pack(message)
        status.details.append(detail)
    data: bytes = status.SerializeToString()
    return data


def bad_request(*fields: str) -> error_details_pb2.BadRequest:
    violation = error_details_pb2.BadRequest.FieldViolation
    return error_details_pb2.BadRequest(
        field_violations=[violation(field=field, description="why") for field in fields]
    )


def retry_info(seconds: int, nanos: int) -> error_details_pb2.RetryInfo:
    return error_details_pb2.RetryInfo(
        retry_delay=duration_pb2.Duration(seconds=seconds, nanos=nanos)
    )


@pytest.mark.parametrize(
    ("data", "details"),
    [
        (encode(), Details()),
        (encode(bad_request("source")), Details(field="source")),
        (encode(bad_request("version", "source")), Details(field="version")),
        (encode(bad_request()), Details()),
        (encode(retry_info(1, 500_000_000)), Details(retry_after_s=1.5)),
        (encode(retry_info(-1, 0)), Details(retry_after_s=0.0)),
        (
            encode(bad_request("source"), retry_info(2, 0)),
            Details(field="source", retry_after_s=2.0),
        ),
        (
            encode(error_details_pb2.ErrorInfo(reason="NO_SCORER", domain="seqserve")),
            Details(reason="NO_SCORER"),
        ),
        (encode(error_details_pb2.DebugInfo(detail="unknown here")), Details()),
        (b"", Details()),
        (b"\x1a\x7f", Details()),
    ],
)
def test_reads_what_googleapis_writes(data: bytes, details: Details) -> None:
    assert read_details(data) == details
