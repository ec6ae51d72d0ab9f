"""The record of one call, for the log, the metrics and the trace."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.request import Spec

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
    """The client's trace headers."""
    requests: list[EndedRequest] = field(default_factory=list)
    """The first requests that ended."""


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One call, from its arrival on."""

    path: str
    """The method as gRPC writes it: ``/package.Service/Method``."""
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
    """Its version; 0 as long as the model is not known."""
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


def method_name(path: str) -> str:
    """Returns ``Service.Method`` of a method as gRPC writes it."""
    return path.rpartition(".")[2].replace("/", ".")


def trace_of(metadata: Metadata | None) -> Trace:
    """Begins the trace of a call."""
    parent = {key: str(value) for key, value in metadata or () if key in _TRACE_KEYS}
    return Trace(parent=parent)
