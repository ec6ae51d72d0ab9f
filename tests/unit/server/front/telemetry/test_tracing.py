"""Traces of calls: which spans there are, what they say, and that they hold nobody up."""

import asyncio
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.support.logged import fields_of
from tests.unit.server.front.calls import batch, bulk, ended, failure, request
from tests.unit.server.front.security.test_tokens import line as token_line
from tests.unit.server.front.service import Service, serving
from tests.unit.server.open_inference.tensor import asking

from seqserve_server.contract.errors import DeadlinePassed, QueueFull, Stage, StartupError
from seqserve_server.contract.events import Event, Failed, TargetScored, Timeline
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, ScoreSpec
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.security.protection import Security
from seqserve_server.front.security.tokens import Tokens
from seqserve_server.front.telemetry.call_record import OK, CallRecord, EndedRequest, Trace
from seqserve_server.front.telemetry.scrape import render
from seqserve_server.front.telemetry.tracing import Tracing, tracing_to
from seqserve_server.serve import server

SECRET = "the words of a user"
SPEC = GenerateSpec(source=[1, 2], options=DecodingOptions(max_decoding_length=5))
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, LEFT_OUT = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


@dataclass
class Traced:
    service: Service
    tracing: Tracing
    exporter: InMemorySpanExporter

    def spans(self) -> tuple[ReadableSpan, ...]:
        """Ends tracing and gives its spans as they began."""
        self.tracing.close()
        return by_begin(self.exporter)


def by_begin(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, ...]:
    """Gives spans as they began, those around others first."""
    spans = exporter.get_finished_spans()
    return tuple(sorted(spans, key=lambda span: (span.start_time or 0, -(span.end_time or 0))))


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ours(span: ReadableSpan) -> dict[str, Any]:
    return {
        name.removeprefix("seqserve."): value
        for name, value in attributes(span).items()
        if name.startswith("seqserve.")
    }


@asynccontextmanager
async def tracing_all(**settings: Any) -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter, 1.0)
    async with serving(tracing=tracing, **settings) as service:
        yield Traced(service, tracing, exporter)
    tracing.close()


@pytest.fixture
async def traced() -> AsyncIterator[Traced]:
    async with tracing_all() as traced:
        yield traced


def ids(span: ReadableSpan) -> tuple[str, str]:
    """Gives the ids of a span's trace and of the span around it."""
    around = f"{span.parent.span_id:016x}" if span.parent else ""
    return f"{span.get_span_context().trace_id:032x}", around  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["Generate", "GenerateStream"])
async def test_call_and_its_stages(traced: Traced, method: str) -> None:
    metadata = (("traceparent", SAMPLED), ("x-request-id", "mine-1"))
    call = getattr(traced.service.generation, method)(request(SECRET), metadata=metadata)
    _ = [message async for message in call] if method == "GenerateStream" else await call
    spans = traced.spans()
    assert [span.name for span in spans[1:]] == ["queue", "encode", "decode"]
    whole, queue, encode, decode = spans
    assert (whole.name, whole.kind) == (f"seqserve.v1.GenerationService/{method}", SpanKind.SERVER)
    assert ids(whole) == (TRACE, PARENT)
    assert whole.status.status_code is StatusCode.UNSET
    own = f"{whole.get_span_context().span_id:016x}"  # type: ignore[union-attr]
    assert {ids(span) for span in (queue, encode, decode)} == {(TRACE, own)}
    assert attributes(whole).items() >= {
        ("rpc.system.name", "grpc"),
        ("rpc.method", f"seqserve.v1.GenerationService/{method}"),
        ("rpc.response.status_code", "OK"),
        ("seqserve.request_id", "mine-1"),
        ("seqserve.model", "echo"),
        ("seqserve.source_tokens", len(SECRET) + 1),
        ("seqserve.generated_tokens", len(SECRET)),
    }
    assert ours(encode) == {"source_tokens": len(SECRET) + 1}
    assert ours(decode) == {
        "rows": 1,
        "batch_rows": 1,
        "generated_tokens": len(SECRET),
        "stop_reason": "eos",
    }


async def test_times_add_up(traced: Traced) -> None:
    traced.service.runtime.step_s = 0.002
    before_ns = time.time_ns()
    answer = await traced.service.generate("slowly")
    after_ns = time.time_ns()
    whole, *stages = traced.spans()
    lasted = [(span.end_time or 0) - (span.start_time or 0) for span in stages]
    timings = answer.timings
    told = [timings.queue_ms, timings.encode_ms, timings.decode_ms]
    assert [ns * 1e-6 for ns in lasted] == pytest.approx(told, abs=0.01)
    assert stages[0].start_time == whole.start_time
    assert [span.start_time for span in stages[1:]] == [span.end_time for span in stages[:-1]]
    assert before_ns - 10**6 < (whole.start_time or 0)
    assert (stages[-1].end_time or 0) <= (whole.end_time or 0) < after_ns + 10**9


async def test_no_text_of_users(traced: Traced) -> None:
    await traced.service.generate(SECRET, stop_sequences=["user"], target_prefix="the ")
    await failure(traced.service.generate(SECRET, model=SECRET))
    traced.service.runtime.fault = ValueError(SECRET)
    await failure(traced.service.generate(SECRET))
    spans = traced.spans()
    assert len(spans) == 9
    assert SECRET not in "".join(span.to_json() for span in spans)


@pytest.mark.parametrize(
    ("parent", "state"), [(SAMPLED, SECRET), (SAMPLED, f"a={SECRET},a=1"), (SECRET, "a=1")]
)
async def test_parent_that_makes_no_sense_is_not_repeated(
    traced: Traced, caplog: pytest.LogCaptureFixture, parent: str, state: str
) -> None:
    metadata = (("traceparent", parent), ("tracestate", state))
    await traced.service.generation.Generate(request("a"), metadata=metadata)
    assert len(traced.spans()) == 4
    assert SECRET not in caplog.text


async def test_each_source_of_a_batch(traced: Traced) -> None:
    sources = [f"source {number}" for number in range(9)]
    await traced.service.generation.GenerateBatch(batch(*sources, ""))
    spans = traced.spans()
    [whole] = [span for span in spans if span.kind is SpanKind.SERVER]
    around = {
        span.get_span_context().span_id: span  # type: ignore[union-attr]
        for span in spans
        if span.name == "source"
    }
    assert len(around) == len(sources) and len(spans) == 1 + 4 * len(sources)
    assert sorted(ours(span)["number"] for span in around.values()) == list(range(len(sources)))
    for span in spans:
        if span.name in ("queue", "encode", "decode"):
            outer = around[span.parent.span_id]  # type: ignore[union-attr]
            assert (outer.start_time or 0) <= (span.start_time or 0)
            assert (span.end_time or 0) <= (outer.end_time or 0)
    assert ours(whole)["sources"] == 10


async def test_each_segment_of_a_text(traced: Traced) -> None:
    await traced.service.generate("It is. Late.", segmentation="sentences")
    spans = traced.spans()
    [whole] = [span for span in spans if span.kind is SpanKind.SERVER]
    assert sum(span.name == "source" for span in spans) == ours(whole)["segments"] == 2
    assert ours(whole)["source_tokens"] == len(b"It is.Late.") + 2


async def test_each_source_of_a_call_without_end(traced: Traced) -> None:
    sent = [bulk(number, f"source {number}") for number in range(3)]
    await ended(traced.service.generation.GenerateBulk(sent))
    names = Counter(span.name for span in traced.spans() if span.kind is not SpanKind.SERVER)
    assert names == {"source": 3, "queue": 3, "encode": 3, "decode": 3}


async def test_call_of_the_open_inference_protocol(traced: Traced) -> None:
    inference = traced.service.inference
    await inference.ModelInfer(asking("a", "b"))
    _ = [answer async for answer in inference.ModelStreamInfer(iter([asking("c")]))]
    spans = traced.spans()
    assert Counter(span.name for span in spans) == {
        "inference.GRPCInferenceService/ModelInfer": 1,
        "inference.GRPCInferenceService/ModelStreamInfer": 1,
        "source": 2,
        **dict.fromkeys(("queue", "encode", "decode"), 3),
    }
    servers = [span for span in spans if span.kind is SpanKind.SERVER]
    assert all(attributes(span)["rpc.method"] == span.name for span in servers)


async def test_call_without_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tokens = tmp_path / "tokens"
    tokens.write_text(token_line("good", name="web"))
    async with tracing_all(security=Security(tokens=Tokens(tokens))) as traced:
        await failure(traced.service.generate("a"))
        metadata = (("authorization", "Bearer good"),)
        await traced.service.generation.Generate(request("a"), metadata=metadata)
    refused, whole, *stages = traced.spans()
    assert attributes(refused)["rpc.response.status_code"] == "UNAUTHENTICATED"
    assert attributes(whole)["rpc.response.status_code"] == "OK"
    assert [span.name for span in stages] == ["queue", "encode", "decode"]
    lines = fields_of(caplog)
    assert [each["trace_id"] for each in lines] == [ids(refused)[0], ids(whole)[0]]
    assert [each.get("caller") for each in lines] == [None, "web"]


@pytest.mark.parametrize(
    ("source", "model", "code"), [("", "", "INVALID_ARGUMENT"), ("a", "none", "NOT_FOUND")]
)
async def test_call_that_is_refused(traced: Traced, source: str, model: str, code: str) -> None:
    await failure(traced.service.generate(source, model=model))
    [whole] = traced.spans()
    assert attributes(whole)["rpc.response.status_code"] == code
    assert whole.status.status_code is not StatusCode.ERROR
    assert "error.type" not in attributes(whole)


def test_request_that_was_refused_and_came_again_is_one() -> None:
    call = CallRecord(path="/s/m", request_id="1", trace=Trace(parent={}))
    one, other = replace(SPEC), replace(SPEC)
    refused, answered = Failed(QueueFull("full", 1.0)), Failed(DeadlinePassed(Stage.DECODE))
    for spec, event in ((one, refused), (other, refused), (one, answered)):
        call.ended(EndedRequest(spec, Timeline(), event))
    assert call.trace is not None
    ended = [(request.spec, request.event) for request in call.trace.requests]
    assert ended == [(other, refused), (one, answered)]


async def test_call_that_meets_a_fault(traced: Traced) -> None:
    traced.service.runtime.fault = ValueError("of the runtime")
    await failure(traced.service.generate("a"))
    whole, *_, decode = traced.spans()
    for span, error in ((whole, "INTERNAL"), (decode, "EngineFault")):
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == error


async def test_caller_that_leaves(traced: Traced) -> None:
    traced.service.runtime.hold_after(2)
    call = traced.service.generation.GenerateStream(request("a" * 48))
    await call.read()
    call.cancel()
    method = "GenerationService.GenerateStream"
    await traced.service.until_value(1, "requests_total", method=method, code="CANCELLED")
    # The engine has not told how far it was.
    [whole] = traced.spans()
    assert attributes(whole)["rpc.response.status_code"] == "CANCELLED"


@pytest.mark.parametrize(
    ("parent", "trace_id", "found_by"),
    [(SAMPLED, TRACE, f'trace_id="{TRACE}"'), (LEFT_OUT, None, 'request_id="mine-1"')],
)
async def test_line_in_the_log_and_bucket_name_the_trace(
    traced: Traced, caplog: Any, parent: str, trace_id: str | None, found_by: str
) -> None:
    caplog.set_level(logging.INFO)
    metadata = (("traceparent", parent), ("x-request-id", "mine-1"))
    await traced.service.generation.Generate(request("a"), metadata=metadata)
    [line] = fields_of(caplog)
    assert line.get("trace_id") == trace_id
    registry = traced.service.metrics.registry
    text, _ = await asyncio.to_thread(render, registry, "application/openmetrics-text")
    assert f" # {{{found_by}}} " in text.decode()


# ---- one call that is over


ARRIVED_S = time.monotonic() - 10.0


def record(parent: str = "", requests: Sequence[EndedRequest] = ()) -> CallRecord:
    trace = Trace(parent={"traceparent": parent} if parent else {})
    path = "/seqserve.v1.GenerationService/Score"
    call = CallRecord(path=path, request_id="a1", began_s=ARRIVED_S, trace=trace)
    for each in requests:
        call.ended(each)
    return call


def traced_alone(call: CallRecord, ratio: float = 1.0) -> tuple[str, tuple[ReadableSpan, ...]]:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter, ratio)
    trace_id = tracing.ended(call, OK, time.monotonic())
    tracing.close()
    return trace_id, by_begin(exporter)


def over(event: Event, spec: GenerateSpec | ScoreSpec = SPEC, **timeline: float) -> EndedRequest:
    times = {name: ARRIVED_S + seconds for name, seconds in timeline.items()}
    return EndedRequest(replace(spec), Timeline(arrived_s=ARRIVED_S, **times), event)


@pytest.mark.parametrize(
    ("parent", "ratio", "is_traced"),
    [
        ("", 1.0, True),
        ("", 0.0, False),
        (SAMPLED, 0.0, True),
        (LEFT_OUT, 1.0, False),
        ("00-nonsense", 1.0, True),
        (SAMPLED.replace("0af7", "####"), 0.0, False),
    ],
)
def test_caller_decides_whether_it_is_traced(parent: str, ratio: float, is_traced: bool) -> None:
    trace_id, spans = traced_alone(record(parent), ratio)
    assert len(spans) == is_traced
    assert bool(trace_id) is is_traced
    assert (trace_id == TRACE) is (parent == SAMPLED)


def test_known_target() -> None:
    spec = ScoreSpec(source=[1, 2], target=[4, 5, 6])
    scored = over(TargetScored([], []), spec, encode_began_s=1.0, finished_s=3.0)
    _, (_, queue, score) = traced_alone(record(requests=[scored]))
    assert (queue.name, score.name) == ("queue", "score")
    assert (score.end_time or 0) - (score.start_time or 0) == pytest.approx(2e9, abs=1e3)
    assert ours(score) == {"source_tokens": 2, "target_tokens": 3}


@pytest.mark.parametrize(
    ("timeline", "stages"),
    [
        ({}, ["queue"]),
        ({"encode_began_s": 1.0}, ["queue", "encode"]),
        ({"encode_began_s": 1.0, "encode_ended_s": 2.0}, ["queue", "encode", "decode"]),
    ],
)
def test_request_that_fails_on_its_way(timeline: dict[str, float], stages: list[str]) -> None:
    event = Failed(DeadlinePassed(Stage.DECODE))
    _, (_, *spans) = traced_alone(record(requests=[over(event, **timeline)]))
    assert [span.name for span in spans] == stages
    marked = [span.name for span in spans if span.status.status_code is StatusCode.ERROR]
    assert marked == stages[-1:]
    assert attributes(spans[-1])["error.type"] == "DeadlinePassed"
    assert (spans[-1].end_time or 0) > (spans[-1].start_time or 0)


def test_call_of_any_number_of_requests_has_a_trace_of_bounded_size() -> None:
    late = Failed(DeadlinePassed(Stage.QUEUE))
    _, spans = traced_alone(record(requests=[over(late) for _ in range(1000)]))
    assert len(spans) == 1 + 2 * 64


def test_untraced_call_keeps_no_request() -> None:
    call = CallRecord(path="/seqserve.v1.GenerationService/Generate", request_id="a1")
    call.ended(over(TargetScored([], [])))
    assert call.trace is None


def test_name_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    _, [span] = traced_alone(record())
    assert span.resource.attributes["service.name"] == "seqserve"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "translation")
    _, [span] = traced_alone(record())
    assert span.resource.attributes["service.name"] == "translation"


# ---- collectors that do not do their part


class Stuck(SpanExporter):
    """Takes no spans until it is shut down."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_over.wait(1000.0)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.is_over.set()


class Broken(Stuck):
    """Fails at every try."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise ConnectionError("no collector there")


@pytest.mark.parametrize("kind", [Stuck, Broken])
async def test_calls_do_not_wait_for_the_collector(
    kind: type[Stuck], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that it is full at once.
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    exporter = kind()
    slow = Tracing(exporter, 1.0, flush_s=0.1)
    async with serving(tracing=slow) as service:
        answers = [await service.generate("a") for _ in range(10)]
    assert len(answers) == 10
    began_s = time.monotonic()
    slow.close()
    assert time.monotonic() - began_s < 60.0
    assert exporter.is_over.is_set()


@pytest.mark.parametrize(
    "endpoint", ["localhost:4317", "grpc://localhost:4317", "http://", "http://host", "http://a:b"]
)
def test_endpoint_that_is_none(endpoint: str) -> None:
    with pytest.raises(StartupError, match=r"--otlp-endpoint: .*http://host:port"):
        tracing_to(endpoint, 1.0)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.tracing_of(ServeOptions()) is None
    monkeypatch.delitem(sys.modules, "seqserve_server.front.telemetry.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    with pytest.raises(StartupError, match=r"--otlp-endpoint.*pip install 'seqserve\[tracing\]'"):
        server.tracing_of(ServeOptions(otlp_endpoint="http://localhost:4317"))
