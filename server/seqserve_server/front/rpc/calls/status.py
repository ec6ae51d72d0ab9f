"""The one table from an error to what the caller sees.

Sources: google/rpc/code.proto, google/rpc/error_details.proto; gRPC "Richer error model"; AIP-193,
https://google.aip.dev/193 (``ErrorInfo`` tells apart what shares a status).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import (
    DeadlinePassed,
    Draining,
    EngineFault,
    InvalidRequest,
    ModelNotFound,
    ModelNotLoaded,
    ModelUnavailable,
    NoScorer,
    PermissionDenied,
    QueueFull,
    ServiceError,
    Unauthenticated,
)

_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "seqserve"
# Another server may be up by then, or this one again.
_UNAVAILABLE_RETRY_S = 1.0
# Status and details travel as headers, of which clients take 8 KiB.
_MOST_CHARACTERS = 1000


def _bad_request(error: ServiceError) -> list[Message]:
    assert isinstance(error, InvalidRequest)
    violation = BadRequest.FieldViolation(field=error.field, description=error.reason)
    return [BadRequest(field_violations=[violation])]


def _retry(delay_s: float) -> list[Message]:
    delay = Duration()
    delay.FromNanoseconds(int(delay_s * 1e9))
    return [RetryInfo(retry_delay=delay)]


def _retry_full(error: ServiceError) -> list[Message]:
    assert isinstance(error, QueueFull)
    return _retry(error.retry_after_s)


def _retry_later(error: ServiceError) -> list[Message]:
    return _retry(_UNAVAILABLE_RETRY_S)


def _nothing(error: ServiceError) -> list[Message]:
    return []


@dataclass(frozen=True, slots=True)
class Row:
    """What the caller sees of one class of error."""

    code: grpc.StatusCode
    reason: str
    """For programs, in ``ErrorInfo``."""
    details: Callable[[ServiceError], list[Message]] = _nothing
    """What is attached beside it."""


TABLE: dict[type[ServiceError], Row] = {
    InvalidRequest: Row(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", _bad_request),
    ModelNotFound: Row(grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND"),
    QueueFull: Row(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", _retry_full),
    DeadlinePassed: Row(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_PASSED"),
    ModelUnavailable: Row(grpc.StatusCode.UNAVAILABLE, "MODEL_UNAVAILABLE", _retry_later),
    ModelNotLoaded: Row(grpc.StatusCode.FAILED_PRECONDITION, "MODEL_NOT_LOADED"),
    NoScorer: Row(grpc.StatusCode.FAILED_PRECONDITION, "NO_TEACHER"),
    Draining: Row(grpc.StatusCode.UNAVAILABLE, "DRAINING", _retry_later),
    Unauthenticated: Row(grpc.StatusCode.UNAUTHENTICATED, "NO_VALID_TOKEN"),
    PermissionDenied: Row(grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING"),
    EngineFault: Row(grpc.StatusCode.INTERNAL, "FAULT"),
}

_FAULT = TABLE[EngineFault]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What ends a call that did not go well."""

    code: grpc.StatusCode
    reason: str
    """For programs and the log: it never holds words of the caller's."""
    field: str
    """Of the request, that was wrong; empty where none is to blame."""
    message: str
    """For the caller, whose words it may hold."""
    trailers: tuple[tuple[str, bytes], ...]


def failure_of(error: Exception, request_id: str) -> Failure:
    """Finds what the caller sees of an error; of a fault of ours only the id that is in the log."""
    row, message, details = _found(error, request_id)
    status = Status(code=row.code.value[0], message=message)
    for detail in (ErrorInfo(reason=row.reason, domain=_DOMAIN), *details):
        status.details.add().Pack(detail)
    trailer = (_DETAILS_KEY, status.SerializeToString())
    return Failure(
        code=row.code,
        reason=row.reason,
        field=error.field if isinstance(error, InvalidRequest) else "",
        message=message,
        trailers=(trailer,),
    )


def failure_within(error: Exception, request_id: str) -> generation_pb2.Failure:
    """Gives the same as a message, for one source of a call that has many."""
    row, message, details = _found(error, request_id)
    failure = generation_pb2.Failure(code=row.code.value[0], message=message)
    for detail in details:
        if isinstance(detail, BadRequest):
            failure.field = detail.field_violations[0].field
        elif isinstance(detail, RetryInfo):
            failure.retry_after_ms = detail.retry_delay.ToTimedelta().total_seconds() * 1e3
    return failure


def _found(error: Exception, request_id: str) -> tuple[Row, str, list[Message]]:
    row = next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), _FAULT)
    if row is _FAULT:
        return row, f"a fault of the server; its log has id {request_id}", []
    assert isinstance(error, ServiceError)
    return row, str(error)[:_MOST_CHARACTERS], row.details(error)
