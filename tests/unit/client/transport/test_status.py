from __future__ import annotations

import grpc
import pytest

from seqserve._transport.details import METADATA_KEY
from seqserve._transport.status import error_of, max_bytes_of
from seqserve.errors import CallError, InternalError, InvalidArgument, Overloaded, Unavailable


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
def test_the_message_of_a_status_may_choose_the_error(
    code: str, details: str, kind: type[CallError]
) -> None:
    assert type(error_of(grpc.StatusCode[code], details, ())) is kind


def test_foreign_metadata_and_broken_details_are_ignored() -> None:
    metadata: list[tuple[str, str | bytes]] = [
        ("x-request-id", "7"),
        (METADATA_KEY, b"\xff\xff\xff"),
    ]
    error = error_of(grpc.StatusCode.UNAVAILABLE, "draining", metadata)
    assert (error.details, error.field, error.retry_after_s) == ("draining", "", None)
    assert error.request_id == "7"


@pytest.mark.parametrize(
    ("details", "told", "limit"),
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
    details: str, told: str, limit: int | None
) -> None:
    error = error_of(grpc.StatusCode.RESOURCE_EXHAUSTED, details, [("x-request-id", "7")])
    assert isinstance(error, InvalidArgument)
    assert (error.details, error.request_id) == (told, "7")
    assert error.field == ("source" if limit else "max_message_bytes")
    assert max_bytes_of(error) == limit
