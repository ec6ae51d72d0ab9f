import pickle

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from seqserve._transport.status import METADATA_KEY, error_of, max_bytes_of, read_details
from seqserve.errors import (
    CallError,
    Cancelled,
    InternalError,
    InvalidArgument,
    Overloaded,
    Unavailable,
    Unreachable,
)


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_status_has_an_error(code: grpc.StatusCode) -> None:
    error = error_of(code, "why", ())
    assert isinstance(error, CallError)
    assert (error.code, error.details) == (code.name, "why")


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        ("INTERNAL", "Received RST_STREAM with error code 2", Unavailable),
        ("INTERNAL", "Stream removed", Unavailable),
        ("INTERNAL", "fault 7f3a", InternalError),
        ("UNKNOWN", "Exception calling application", InternalError),
        ("RESOURCE_EXHAUSTED", "the queue is full", Overloaded),
    ],
)
def test_the_message_may_choose_the_error(code: str, details: str, kind: type[CallError]) -> None:
    assert type(error_of(grpc.StatusCode[code], details, ())) is kind


@pytest.mark.parametrize(
    ("details", "plain"),
    [
        (
            "connections to all backends failing; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to"
            " connect to remote host: Connection refused",
            "no connection to 127.0.0.1:1: Connection refused",
        ),
        (
            "failed to connect to all addresses; last error: UNAVAILABLE: ipv6:%5B::1%5D:1: Socket"
            " closed",
            "no connection to [::1]:1: Socket closed",
        ),
        (
            "errors resolving there.invalid:1: [field:hostname lookup error:address lookup failed"
            " for there.invalid:1: Domain name not found]",
            "no address of there.invalid:1: Domain name not found",
        ),
        ("DNS resolution failed", "DNS resolution failed"),
    ],
)
def test_no_connection_is_explained_in_plain_words(details: str, plain: str) -> None:
    error = error_of(grpc.StatusCode.UNAVAILABLE, details, ())
    assert isinstance(error, Unreachable)
    assert error.details == plain


@pytest.mark.parametrize(
    ("details", "by_server"),
    [("Locally cancelled by application!", False), ("RST_STREAM by a proxy", True)],
)
def test_a_cancellation_has_its_origin(details: str, by_server: bool) -> None:
    error = error_of(grpc.StatusCode.CANCELLED, details, ())
    assert isinstance(error, Cancelled) and error.by_server is by_server


def test_foreign_metadata_and_broken_details_are_ignored() -> None:
    metadata: list[tuple[str, str | bytes]] = [
        ("x-request-id", "7"),
        (METADATA_KEY, b"\xff\xff\xff"),
    ]
    error = error_of(grpc.StatusCode.UNAVAILABLE, "draining", metadata)
    assert (error.details, error.field, error.retry_after_s) == ("draining", "", None)
    assert error.request_id == "7"


@pytest.mark.parametrize(
    ("details", "message", "limit"),
    [
        (
            "SERVER: Received message larger than max (2000 vs. 1000)",
            "source: its request has 2,000 bytes; the server takes at most 1,000: send it in parts",
            1000,
        ),
        (
            "Stream removed (CLIENT: Received message larger than max (2000 vs. 1000))",
            "the answer has 2,000 bytes; max_message_bytes of this client is 1,000",
            None,
        ),
    ],
)
def test_too_many_bytes_are_no_full_queue_and_name_what_has_them(
    details: str, message: str, limit: int | None
) -> None:
    error = error_of(grpc.StatusCode.RESOURCE_EXHAUSTED, details, [("x-request-id", "7")])
    assert isinstance(error, InvalidArgument)
    assert (error.details, error.request_id) == (message, "7")
    assert error.field == ("source" if limit else "max_message_bytes")
    assert error.code == ("RESOURCE_EXHAUSTED" if limit else "INVALID_ARGUMENT")
    assert max_bytes_of(error) == limit


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
        (encode(), {}),
        (encode(bad_request("source")), {"field": "source"}),
        (encode(bad_request("version", "source")), {"field": "version"}),
        (encode(bad_request()), {}),
        (encode(retry_info(1, 500_000_000)), {"retry_after_s": 1.5}),
        (encode(retry_info(-1, 0)), {"retry_after_s": 0.0}),
        (encode(bad_request("source"), retry_info(2, 0)), {"field": "source", "retry_after_s": 2}),
        (encode(error_details_pb2.ErrorInfo(reason="NO_SCORER")), {"reason": "NO_SCORER"}),
        (encode(error_details_pb2.DebugInfo(detail="unknown here")), {}),
        (b"", {}),
        (b"\x1a\x7f", {}),
    ],
)
def test_reads_what_googleapis_writes(data: bytes, details: dict[str, object]) -> None:
    assert read_details(data) == details


@pytest.mark.parametrize("kind", [CallError, Overloaded, InvalidArgument])
def test_an_error_survives_pickling(kind: type[CallError]) -> None:
    error = kind("CODE", "it broke", field="source", retry_after_s=1.5, request_id="mine-1")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), vars(copy), str(copy)) == (kind, vars(error), "CODE: it broke")
