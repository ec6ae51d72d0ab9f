"""The one table from an error to its status, reason, metrics label and mark in a trace.

Sources: google/rpc/code.proto; AIP-193, https://google.aip.dev/193 (``ErrorInfo.reason`` tells
apart errors that share a status); OpenTelemetry semantic conventions for gRPC,
https://opentelemetry.io/docs/specs/semconv/rpc/grpc/ (which statuses are faults of a server).
"""

from __future__ import annotations

from dataclasses import dataclass

from grpc import StatusCode

from seqserve_server.contract import errors


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ends: one row of the table."""

    code: StatusCode
    reason: str = ""
    """Machine-readable; ``ErrorInfo.reason`` and the log."""
    rejected: str = ""
    """Label ``reason`` of ``seqserve_rejected_total``; empty if the error is not counted there."""
    is_fault: bool = False
    """Whether a trace marks the call as a fault of the server."""


OK = Outcome(StatusCode.OK)
CANCELLED = Outcome(StatusCode.CANCELLED)
FAULT = Outcome(StatusCode.INTERNAL, "FAULT", is_fault=True)
OUTCOMES: dict[type[errors.ServiceError], Outcome] = {
    errors.InvalidRequest: Outcome(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", "invalid"),
    errors.ModelNotFound: Outcome(StatusCode.NOT_FOUND, "MODEL_NOT_FOUND"),
    # Its label is the bound that was reached: see rejection_of.
    errors.QueueFull: Outcome(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL"),
    errors.DeadlinePassed: Outcome(StatusCode.DEADLINE_EXCEEDED, "DEADLINE_PASSED", is_fault=True),
    errors.ModelUnavailable: Outcome(StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE", is_fault=True),
    errors.ModelNotLoaded: Outcome(StatusCode.FAILED_PRECONDITION, "MODEL_NOT_LOADED"),
    errors.NoScorer: Outcome(StatusCode.FAILED_PRECONDITION, "NO_SCORER"),
    errors.NoDetector: Outcome(StatusCode.FAILED_PRECONDITION, "NO_DETECTOR"),
    errors.Draining: Outcome(StatusCode.UNAVAILABLE, "DRAINING", "draining", is_fault=True),
    errors.Unauthenticated: Outcome(StatusCode.UNAUTHENTICATED, "NO_VALID_TOKEN"),
    errors.PermissionDenied: Outcome(StatusCode.PERMISSION_DENIED, "SCOPE_MISSING"),
    errors.EngineFault: FAULT,
}


def outcome_of(error: BaseException) -> Outcome:
    """Finds the row of an error, or of its base class; any other exception is a fault."""
    return next((OUTCOMES[kind] for kind in type(error).__mro__ if kind in OUTCOMES), FAULT)


def rejection_of(error: BaseException) -> str:
    """Returns the label of an error in ``seqserve_rejected_total``; empty if it has none."""
    return error.bound.value if isinstance(error, errors.QueueFull) else outcome_of(error).rejected
