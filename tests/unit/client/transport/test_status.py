from __future__ import annotations

import grpc
import pytest

from seqserve._transport.details import METADATA_KEY
from seqserve._transport.status import error_of
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
        ("RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)", InvalidArgument),
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
