"""The table of errors: status, reason, metrics label and mark in a trace."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from seqserve_server.contract import errors
from seqserve_server.front.telemetry.call_record import (
    FAULT,
    OUTCOMES,
    Outcome,
    outcome_of,
    rejection_of,
)


def test_every_error_of_a_call_has_a_row() -> None:
    assert set(OUTCOMES) == set(errors.ServiceError.__subclasses__())


def test_reasons_tell_rows_apart() -> None:
    assert len({row.reason for row in OUTCOMES.values()}) == len(OUTCOMES)


def test_subclass_has_the_row_of_its_parent() -> None:
    class Later(errors.Draining):
        pass

    assert outcome_of(Later("later")) is OUTCOMES[errors.Draining]


def test_any_other_exception_is_a_fault() -> None:
    assert outcome_of(ZeroDivisionError()) is FAULT


@pytest.mark.parametrize("row", OUTCOMES.values(), ids=lambda row: row.reason)
def test_trace_marks_faults_as_the_conventions_of_grpc_do(row: Outcome) -> None:
    faults = {StatusCode.INTERNAL, StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED}
    assert row.is_fault is (row.code in faults)


@pytest.mark.parametrize(
    ("error", "label"),
    [
        (errors.QueueFull("full", 1.0), "queue_full"),
        (errors.QueueFull("full", 1.0, errors.Bound.CALLER), "caller_share"),
        (errors.Draining("bye"), "draining"),
        (errors.InvalidRequest("source", "is empty"), "invalid"),
        (errors.ModelNotFound("no model"), ""),
        (ZeroDivisionError(), ""),
    ],
)
def test_rejections_are_counted_by_label(error: Exception, label: str) -> None:
    assert rejection_of(error) == label
