"""The record of one call, for the log, the metrics and the trace; and how a call ends.

One table goes from an error to its status, its reason, its metrics label and its mark in a trace.

Sources: google/rpc/code.proto; google/rpc/error_details.proto; gRPC "Richer error model",
https://grpc.io/docs/guides/error/; AIP-193, https://google.aip.dev/193 (``ErrorInfo.reason``
distinguishes errors that share a status); OpenTelemetry semantic conventions for gRPC,
https://opentelemetry.io/docs/specs/semconv/rpc/grpc/ (which statuses are faults of a server).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from seqserve.v1 import generation_pb2
from seqserve_server.contract import errors
from seqserve_server.contract.errors import Draining, InvalidRequest, ModelUnavailable, QueueFull
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.request import Spec

NUMBERS_DIFFER = "numbers_differ"
"""The fact how many answers differ from their sources in numbers."""

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
# Of W3C Trace Context, https://www.w3.org/TR/trace-context/.
_TRACE_KEYS = ("traceparent", "tracestate")
# A call may have any number of requests; a trace that shows more of them is of no use.
_MAX_TRACED = 64


class EndedRequest(NamedTuple):
    """A request of the engine that has ended."""

    spec: Spec
    timeline: Timeline
    event: Event
    """The last one."""


@dataclass(slots=True, kw_only=True)
class Trace:
    """Data for the spans of a call, which are made when it is over."""

    parent: dict[str, str]
    requests: list[EndedRequest] = field(default_factory=list)
    """The first requests that ended."""


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One call, from its arrival on."""

    path: str
    request_id: str
    peer: str = ""
    """The client's network address, or the name that a trusted proxy gives it."""
    connection: str = ""
    """The client's connection: its address and port, as gRPC writes them."""
    auth_name: str = ""
    """Name of the token; empty if it has none, or the server needs none."""
    began_s: float = field(default_factory=time.monotonic)
    model: str = ""
    """Empty until the model is known to exist, so that clients cannot make up metric labels."""
    version: int = 0
    facts: dict[str, float] = field(default_factory=dict)
    """Counts and times for the log line and the trace; never text."""
    trace: Trace | None = None
    """None if calls are not traced."""

    @property
    def client_id(self) -> str:
        """Names the client whose share of the queue the call uses."""
        return self.auth_name or self.peer

    @property
    def method(self) -> str:
        """The method as ``Service.Method``."""
        return method_name(self.path)

    def ended(self, request: EndedRequest) -> None:
        """Adds an ended engine request to the trace; a retry replaces the try before it."""
        if self.trace is None:
            return
        others = [each for each in self.trace.requests if each.spec is not request.spec]
        if len(others) >= _MAX_TRACED:
            return
        self.trace.requests[:] = others
        if not request.timeline.finished_s:
            request.timeline.finished_s = time.monotonic()
        self.trace.requests.append(request)

    def record_single(
        self, response: generation_pb2.GenerateResponse
    ) -> generation_pb2.GenerateResponse:
        """Notes the facts of the answer to a call of one source, and returns it."""
        if response.segments:
            self.facts["segments"] = len(response.segments)
        timings = response.timings
        self.facts.update(
            source_tokens=response.source_tokens,
            generated_tokens=response.generated_tokens,
            queue_ms=timings.queue_ms,
            first_token_ms=timings.first_token_ms,
        )
        self._count_warned(response)
        return response

    def record_one_of_many(self, response: generation_pb2.GenerateResponse) -> None:
        """Counts one of many sources; the response of one that failed is empty."""
        counts = {
            "sources": 1,
            "source_tokens": response.source_tokens,
            "generated_tokens": response.generated_tokens,
        }
        for name, count in counts.items():
            self.facts[name] = self.facts.get(name, 0) + count
        self._count_warned(response)

    def _count_warned(self, response: generation_pb2.GenerateResponse) -> None:
        if response.hypotheses and response.hypotheses[0].warnings:
            self.facts[NUMBERS_DIFFER] = self.facts.get(NUMBERS_DIFFER, 0) + 1


def method_name(path: str) -> str:
    """Returns ``Service.Method`` of a method as gRPC writes it."""
    return path.rpartition(".")[2].replace("/", ".")


def trace_of(metadata: Metadata | None) -> Trace:
    """Begins the trace of a call."""
    parent = {key: str(value) for key, value in metadata or () if key in _TRACE_KEYS}
    return Trace(parent=parent)


_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "seqserve"
# By then another server may be up, or this one again.
_UNAVAILABLE_RETRY_S = 1.0
# Status and details travel as headers, of which clients accept 8 KiB.
_MAX_CHARACTERS = 1000


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
    errors.Draining: Outcome(StatusCode.UNAVAILABLE, "DRAINING", "draining", is_fault=True),
    errors.Unauthenticated: Outcome(StatusCode.UNAUTHENTICATED, "NO_VALID_TOKEN"),
    errors.PermissionDenied: Outcome(StatusCode.PERMISSION_DENIED, "SCOPE_MISSING"),
    errors.QuotaUsed: Outcome(StatusCode.RESOURCE_EXHAUSTED, "QUOTA_USED", "quota"),
    errors.EngineFault: FAULT,
}


def outcome_of(error: BaseException) -> Outcome:
    """Finds the row of an error, or of its base class; any other exception is a fault."""
    return next((OUTCOMES[kind] for kind in type(error).__mro__ if kind in OUTCOMES), FAULT)


def rejection_of(error: BaseException) -> str:
    """Returns the label of an error in ``seqserve_rejected_total``; empty if it has none."""
    return error.bound.value if isinstance(error, errors.QueueFull) else outcome_of(error).rejected


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
    if isinstance(error, QueueFull | errors.QuotaUsed):
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


_ROUNDING = 0.01
_JITTER_S = 0.005


def has_passed(remaining_s: float | None, elapsed_s: float) -> bool:
    """Returns whether a cancelled call had reached its deadline, if it has one."""
    return remaining_s is not None and remaining_s <= _JITTER_S + _ROUNDING * elapsed_s
