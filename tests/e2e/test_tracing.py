"""Traces of a real server: they reach a collector, and a missing collector harms nothing."""

import signal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import TracerProvider
from tests.support.process import PATIENCE_S, ServerProcess, until

from seqserve import Client

from .collector import Collector

SOURCE = "The old train waits for"


def sent() -> list[tuple[str, str]]:
    """Trace context as OpenTelemetry sends it; the code of the guide."""
    headers: dict[str, str] = {}
    inject(headers)
    return list(headers.items())


def test_traces(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(PATIENCE_S))
    with Collector() as collector:
        options = ("--slots", "4", "--otlp-endpoint", collector.endpoint)
        server = ServerProcess(repository, tmp_path, *options)
        with server, Client(server.target, metadata=sent) as client:
            tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
            with tracer.start_as_current_span("of the caller") as span:
                result = client.generate(SOURCE, max_decoding_length=5)
            until(lambda: len(collector.spans) == 4)
            check(collector, span.get_span_context(), result.generated_tokens)
            collector.__exit__(None, None, None)
            for _ in range(3):
                again = client.generate(SOURCE, max_decoding_length=5)
                assert again.hypotheses == result.hypotheses
            with Collector(collector.port) as other:
                until(lambda: len(other.spans) == 12)
                client.generate(SOURCE, max_decoding_length=5)
                server.signal(signal.SIGTERM)
                assert server.wait() == 0
                # Remaining spans are sent before the server ends.
                assert len(other.spans) == 16
        assert "Traceback" not in server.stderr


def check(collector: Collector, caller: trace.SpanContext, generated_tokens: int) -> None:
    assert collector.services == {"seqserve"}
    spans = {span.name: span for span in collector.spans}
    call = spans.pop("seqserve.v1.GenerationService/Generate")
    assert int.from_bytes(call.trace_id, "big") == caller.trace_id
    assert int.from_bytes(call.parent_span_id, "big") == caller.span_id
    assert set(spans) == {"queue", "encode", "decode"}
    assert {(span.trace_id, span.parent_span_id) for span in spans.values()} == {
        (call.trace_id, call.span_id)
    }
    stages = sorted(spans.values(), key=lambda span: int(span.start_time_unix_nano))
    lasted = sum(span.end_time_unix_nano - span.start_time_unix_nano for span in stages)
    assert stages[0].start_time_unix_nano == call.start_time_unix_nano
    assert lasted == stages[-1].end_time_unix_nano - stages[0].start_time_unix_nano
    assert stages[-1].end_time_unix_nano <= call.end_time_unix_nano
    assert attributes(call)["rpc.response.status_code"].string_value == "OK"
    assert attributes(call)["seqserve.generated_tokens"].int_value == generated_tokens


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value for each in span.attributes}
