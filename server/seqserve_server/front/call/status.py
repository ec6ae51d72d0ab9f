"""Writes an error as the client sees it: status, message and attached details.

Sources: google/rpc/error_details.proto; gRPC "Richer error model",
https://grpc.io/docs/guides/error/.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import Draining, InvalidRequest, ModelUnavailable, QueueFull
from seqserve_server.front.telemetry.outcomes import FAULT, Outcome, outcome_of

_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "seqserve"
# By then another server may be up, or this one again.
_UNAVAILABLE_RETRY_S = 1.0
# Status and details travel as headers, of which clients accept 8 KiB.
_MAX_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error as the status of a call."""

    outcome: Outcome
    field: str
    """The field of the request that was wrong; empty if none was."""
    message: str
    """For the client alone: it may repeat text of the request."""
    trailers: tuple[tuple[str, bytes], ...]


def failure_of(error: BaseException, request_id: str) -> Failure:
    """Builds the status of a call; of a fault the client learns only the id that is in the log."""
    outcome = outcome_of(error)
    message = _message(error, outcome, request_id)
    status = Status(code=outcome.code.value[0], message=message)
    for detail in (ErrorInfo(reason=outcome.reason, domain=_DOMAIN), *_details(error)):
        status.details.add().Pack(detail)
    trailer = (_DETAILS_KEY, status.SerializeToString())
    return Failure(outcome=outcome, field=_field(error), message=message, trailers=(trailer,))


def failure_within(error: BaseException, request_id: str) -> generation_pb2.Failure:
    """Builds the failure of one of many requests of a call, as a message."""
    outcome = outcome_of(error)
    return generation_pb2.Failure(
        code=outcome.code.value[0],
        message=_message(error, outcome, request_id),
        field=_field(error),
        retry_after_ms=1e3 * (_retry_after_s(error) or 0.0),
    )


def _message(error: BaseException, outcome: Outcome, request_id: str) -> str:
    if outcome is FAULT:
        return f"a fault of the server; its log has id {request_id}"
    return str(error)[:_MAX_CHARACTERS]


def _field(error: BaseException) -> str:
    return error.field if isinstance(error, InvalidRequest) else ""


def _retry_after_s(error: BaseException) -> float | None:
    if isinstance(error, QueueFull):
        return error.retry_after_s
    return _UNAVAILABLE_RETRY_S if isinstance(error, ModelUnavailable | Draining) else None


def _details(error: BaseException) -> list[Message]:
    if isinstance(error, InvalidRequest):
        violation = BadRequest.FieldViolation(field=error.field, description=error.reason)
        return [BadRequest(field_violations=[violation])]
    retry_after_s = _retry_after_s(error)
    if retry_after_s is None:
        return []
    delay = Duration()
    delay.FromNanoseconds(int(retry_after_s * 1e9))
    return [RetryInfo(retry_delay=delay)]
