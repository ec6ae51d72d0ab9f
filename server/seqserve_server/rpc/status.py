"""The one table from an error to what the caller sees.

Sources: google/rpc/code.proto, google/rpc/error_details.proto; gRPC "Richer error model".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status

from seqserve_server.errors import (
    DeadlinePassed,
    Draining,
    EngineFault,
    InvalidRequest,
    ModelNotFound,
    ModelUnavailable,
    QueueFull,
    ServiceError,
)

_DETAILS_KEY = "grpc-status-details-bin"
# Another server may be up by then, or this one again.
_UNAVAILABLE_RETRY_S = 1.0


def _bad_request(error: ServiceError) -> Message | None:
    assert isinstance(error, InvalidRequest)
    violation = BadRequest.FieldViolation(field=error.field, description=error.reason)
    details: Message = BadRequest(field_violations=[violation])
    return details


def _retry(delay_s: float) -> Message:
    delay = Duration()
    delay.FromNanoseconds(int(delay_s * 1e9))
    details: Message = RetryInfo(retry_delay=delay)
    return details


def _retry_full(error: ServiceError) -> Message | None:
    assert isinstance(error, QueueFull)
    return _retry(error.retry_after_s)


def _retry_later(error: ServiceError) -> Message | None:
    return _retry(_UNAVAILABLE_RETRY_S)


def _nothing(error: ServiceError) -> Message | None:
    return None


_Details = Callable[[ServiceError], Message | None]

TABLE: dict[type[ServiceError], tuple[grpc.StatusCode, _Details]] = {
    InvalidRequest: (grpc.StatusCode.INVALID_ARGUMENT, _bad_request),
    ModelNotFound: (grpc.StatusCode.NOT_FOUND, _nothing),
    QueueFull: (grpc.StatusCode.RESOURCE_EXHAUSTED, _retry_full),
    DeadlinePassed: (grpc.StatusCode.DEADLINE_EXCEEDED, _nothing),
    ModelUnavailable: (grpc.StatusCode.UNAVAILABLE, _retry_later),
    Draining: (grpc.StatusCode.UNAVAILABLE, _retry_later),
    EngineFault: (grpc.StatusCode.INTERNAL, _nothing),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What ends a call that did not go well."""

    code: grpc.StatusCode
    details: str
    trailers: tuple[tuple[str, bytes], ...] = ()


def failure_of(error: Exception, request_id: str) -> Failure:
    """Finds what the caller sees of an error; of a fault of ours only the id that is in the log."""
    code, make_details = TABLE.get(type(error), (grpc.StatusCode.INTERNAL, _nothing))  # type: ignore[arg-type]
    if code is grpc.StatusCode.INTERNAL:
        return Failure(code=code, details=f"a fault of the server; its log has id {request_id}")
    details = make_details(error) if isinstance(error, ServiceError) else None
    if details is None:
        return Failure(code=code, details=str(error))
    status = Status(code=code.value[0], message=str(error))
    status.details.add().Pack(details)
    trailer = (_DETAILS_KEY, status.SerializeToString())
    return Failure(code=code, details=str(error), trailers=(trailer,))
