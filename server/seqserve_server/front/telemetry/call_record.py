"""What is known of the call at hand, for its line in the log, the metrics and its trace."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.request import Spec
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.calls.status import failure_within

REQUEST_ID = "x-request-id"
Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
# Of W3C Trace Context, https://www.w3.org/TR/trace-context/.
_TRACE_KEYS = ("traceparent", "tracestate")
# A call may have any number of requests; a trace that shows more of them is of no use.
_MOST_TRACED = 64
_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}")


caller: ContextVar[str] = ContextVar("caller", default="")
"""Name of the token of the call that comes in."""


class EndedRequest(NamedTuple):
    """A request of the engine that has ended."""

    spec: Spec
    timeline: Timeline
    event: Event
    """The last one."""


@dataclass(slots=True, kw_only=True)
class Trace:
    """What the trace of a call is made of once it is over."""

    parent: dict[str, str]
    """What the caller sent of its own trace."""
    requests: list[EndedRequest] = field(default_factory=list)
    """The first ones that ended."""


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One call, from its arrival on."""

    path: str
    """Of the method, as gRPC writes it: ``/package.Service/Method``."""
    request_id: str
    origin: str = ""
    """Where it comes from, which stands for a caller whom no token names."""
    began_s: float = field(default_factory=time.monotonic)
    model: str = ""
    """Empty until it is known to exist, so that no caller can make up labels."""
    caller: str = field(default_factory=lambda: caller.get())
    """Name of the token that was shown; empty where it has none, or none was asked for."""
    facts: dict[str, float] = field(default_factory=dict)
    """What else its line in the log says: counts and times, never text."""
    trace: Trace | None = None
    """None where calls are not traced."""
    kept: list[ServedModel] = field(default_factory=list)
    """The versions it was given, which stay loaded until its end."""
    refused: Callable[[str, Exception], None] = lambda model, error: None
    """Called for each of its requests that ends with an error."""

    @property
    def holder(self) -> str:
        """Among whom the queue is shared out."""
        return self.caller or self.origin

    @property
    def method(self) -> str:
        """The method as ``Service.Method``."""
        return self.path.rpartition(".")[2].replace("/", ".")

    def ended(self, request: EndedRequest) -> None:
        """Notes a request of the call that the engine is done with; one refused may come again."""
        if self.trace is None:
            return
        others = [each for each in self.trace.requests if each.spec is not request.spec]
        if len(others) >= _MOST_TRACED:
            return
        self.trace.requests[:] = others
        if not request.timeline.finished_s:
            request.timeline.finished_s = time.monotonic()
        self.trace.requests.append(request)

    def keep(self, model: ServedModel) -> None:
        """Counts this call among those of a version, so that it is there until the end."""
        model.calls.enter()
        self.kept.append(model)

    def kept_of(self, name: str, version: int) -> ServedModel | None:
        """Finds a version that the call keeps already; 0 for any of that name."""
        for model in self.kept:
            if model.manifest.name == name and version in (0, model.manifest.version):
                return model
        return None

    def release(self) -> None:
        """Leaves every version; the call is over."""
        while self.kept:
            self.kept.pop().calls.leave()

    def part(self, began_s: float) -> CallRecord:
        """Begins the record of one of many sources, which came at a time of its own."""
        return replace(self, began_s=began_s, facts={})

    def request(self, began_s: float) -> CallRecord:
        """Begins the record of one of many requests, each of which finds a version of its own.

        It is to be released when it has been answered.
        """
        return replace(self, began_s=began_s, facts={}, kept=[])

    def failed(self, error: ServiceError) -> generation_pb2.Failure:
        """Notes that one of many requests has failed, and gives what it is answered."""
        self.refused(self.model, error)
        return failure_within(error, self.request_id)

    def answered(self, response: generation_pb2.GenerateResponse) -> None:
        """Counts one of many sources; the response of one that failed is empty."""
        self.add(
            sources=1,
            source_tokens=response.source_tokens,
            generated_tokens=response.generated_tokens,
        )

    def add(self, **counts: float) -> None:
        """Adds to facts that are sums."""
        for name, count in counts.items():
            self.facts[name] = self.facts.get(name, 0) + count


current: ContextVar[CallRecord] = ContextVar("call")
"""Of the handler that runs."""


def trace_of(metadata: Metadata | None) -> Trace:
    """Begins the trace of a call."""
    parent = {key: str(value) for key, value in metadata or () if key in _TRACE_KEYS}
    return Trace(parent=parent)


def request_id(metadata: Metadata | None) -> str:
    """Takes the caller's id for the call where it is a sane one, or makes one."""
    for key, value in metadata or ():
        if key == REQUEST_ID and isinstance(value, str) and _SANE_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)
