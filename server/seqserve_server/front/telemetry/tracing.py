"""Traces of calls, sent to an OpenTelemetry collector; needs the extra ``tracing``.

A call becomes a span when it has ended. All its times are known then, and tracing costs nothing
while the call is served::

    seqserve.v1.GenerationService/Generate   the call; a child of the client's span if it sent one
    ├── queue                                from arrival until a worker takes it
    ├── encode
    └── decode                               or score, for a given target

In a call with many sources each one has a span ``source`` around these. Spans wait in a queue of
fixed size, which drops the oldest when it is full; a thread sends them in batches. Attributes are
counts, names and ids, never text.
Sources: OpenTelemetry semantic conventions for gRPC,
https://opentelemetry.io/docs/specs/semconv/rpc/grpc/; W3C Trace Context,
https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, format_trace_id
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from seqserve import __version__
from seqserve.address import channel_options
from seqserve_server.contract.errors import StartupError
from seqserve_server.contract.events import Failed, Finished
from seqserve_server.contract.request import ScoreSpec
from seqserve_server.front.telemetry.call_record import CallRecord, EndedRequest, Outcome

_NAME = "seqserve"
_PREFIX = "seqserve."
# A collector that does not answer must not delay the end of the server for longer.
_FLUSH_S = 5.0
# Answers of a collector are small.
_MAX_MESSAGE_BYTES = 1 << 20
# Its warnings repeat trace headers that clients have sent.
logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)

Attributes = dict[str, str | int | float]


class Interval(NamedTuple):
    """One phase of a request, on the monotonic clock."""

    name: str
    began_s: float
    ended_s: float
    attributes: Attributes
    error: str = ""
    """Type of the error that ended it; empty if there was none."""


class Tracing:
    """Turns calls that have ended into spans."""

    def __init__(
        self, exporter: SpanExporter, sample_ratio: float, flush_s: float = _FLUSH_S
    ) -> None:
        """Starts the thread that sends spans; the last ones get ``flush_s``."""
        self._exporter = exporter
        self._flush_s = flush_s
        self._propagator = TraceContextTextMapPropagator()
        resource = Resource({"service.name": _NAME, "service.version": __version__})
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
            # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES in the environment take precedence.
            resource=resource.merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_NAME, __version__)

    def ended(self, record: CallRecord, outcome: Outcome, ended_s: float) -> str:
        """Makes the spans of a call; returns its trace id, empty if it is not in the sample."""
        if record.trace is None:
            return ""
        clock = _Clock()
        span = self._tracer.start_span(
            record.path.removeprefix("/"),
            context=self._propagator.extract(record.trace.parent),
            kind=SpanKind.SERVER,
            attributes=_of_call(record, outcome),
            start_time=clock.ns(record.began_s),
        )
        if not span.is_recording():
            return ""
        if outcome.is_fault:
            _mark(span, outcome.code.name)
        self._add_requests(record.trace.requests, set_span_in_context(span, Context()), clock)
        span.end(clock.ns(ended_s))
        return format_trace_id(span.get_span_context().trace_id)

    def close(self) -> None:
        """Sends the remaining spans, or gives up after a few seconds; blocks."""
        flush = threading.Thread(target=self._provider.shutdown, daemon=True)
        flush.start()
        flush.join(self._flush_s)
        if flush.is_alive():
            # Ends the export in progress.
            self._exporter.shutdown()

    def _add_requests(self, ended: list[EndedRequest], within: Context, clock: _Clock) -> None:
        for number, request in enumerate(ended):
            intervals = _intervals(request)
            first, last = intervals[0], intervals[-1]
            around = within
            if len(ended) > 1:
                times = first.began_s, last.ended_s
                source = Interval("source", *times, {f"{_PREFIX}number": number}, last.error)
                around = self._add(source, within, clock)
            for interval in intervals:
                self._add(interval, around, clock)

    def _add(self, interval: Interval, within: Context, clock: _Clock) -> Context:
        span = self._tracer.start_span(
            interval.name,
            context=within,
            attributes=interval.attributes,
            start_time=clock.ns(interval.began_s),
        )
        if interval.error:
            _mark(span, interval.error)
        span.end(clock.ns(interval.ended_s))
        return set_span_in_context(span, Context())


def tracing_to(endpoint: str, sample_ratio: float) -> Tracing:
    """Sends traces to a collector by OTLP over gRPC."""
    try:
        parts = urlsplit(endpoint)
        is_sound = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:
        is_sound = False
    if not is_sound:
        raise StartupError(
            f"--otlp-endpoint: {endpoint!r} is not http://host:port or https://host:port;"
            " collectors take OTLP over gRPC at port 4317"
        )
    options: Any = tuple(channel_options(parts.netloc, _MAX_MESSAGE_BYTES))
    is_plain = parts.scheme == "http"
    exporter = OTLPSpanExporter(endpoint, insecure=is_plain, channel_options=options)
    return Tracing(exporter, sample_ratio)


class _Clock:
    """Converts monotonic seconds to Unix nanoseconds, with one offset for a whole call."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def ns(self, monotonic_s: float) -> int:
        return int(monotonic_s * 1e9) + self._offset_ns


def _mark(span: Span, error: str) -> None:
    span.set_status(Status(StatusCode.ERROR))
    span.set_attribute("error.type", error)


def _of_call(record: CallRecord, outcome: Outcome) -> Attributes:
    model: Attributes = {}
    if record.model:
        model = {"model": record.model, "version": record.version}
    return {
        "rpc.system.name": "grpc",
        "rpc.method": record.path.removeprefix("/"),
        "rpc.response.status_code": outcome.code.name,
        **_ours({"request_id": record.request_id, **model, **record.facts}),
    }


def _ours(attributes: Attributes) -> Attributes:
    return {_PREFIX + name: value for name, value in attributes.items()}


def _intervals(request: EndedRequest) -> list[Interval]:
    _, timeline, event = request
    begun = [("queue", timeline.arrived_s, Attributes())]
    begun += [phase for phase in _phases(request) if phase[1]]
    ends = [began_s for _, began_s, _ in begun[1:]] + [timeline.finished_s]
    intervals = [
        Interval(name, began_s, ended_s, _ours(attributes))
        for (name, began_s, attributes), ended_s in zip(begun, ends, strict=True)
    ]
    if isinstance(event, Failed):
        intervals[-1] = intervals[-1]._replace(error=type(event.error).__name__)
    return intervals


def _phases(request: EndedRequest) -> list[tuple[str, float, Attributes]]:
    spec, timeline, event = request
    source: Attributes = {"source_tokens": len(spec.source)}
    if isinstance(spec, ScoreSpec):
        target = source | {"target_tokens": len(spec.target)}
        return [("score", timeline.encode_began_s, target)]
    decode: Attributes = {"rows": spec.rows, "batch_rows": timeline.batch_rows}
    if isinstance(event, Finished):
        decode["generated_tokens"] = sum(len(each.token_ids) for each in event.hypotheses)
        decode["stop_reason"] = event.best.stop_reason.value
    return [
        ("encode", timeline.encode_began_s, source),
        ("decode", timeline.encode_ended_s, decode),
    ]
