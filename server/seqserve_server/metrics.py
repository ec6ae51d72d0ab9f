"""What Prometheus sees: figures of every model's engine and of every call.

Names and labels are a contract; labels are few and bounded, never text, ids or addresses.
Buckets are geometric, so that quantiles are as exact at 1 ms as at 10 s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from seqserve_server.engine.request import Event, Failed, Finished, Request
from seqserve_server.errors import DeadlinePassed, Stage
from seqserve_server.histogram import Histogram, geometric, powers_of_two

_REQUEST_BOUNDS = geometric(0.0005, 60.0)
_STEP_BOUNDS = geometric(0.0001, 1.0)
_COUNT_BOUNDS = powers_of_two(4096)

_HISTOGRAMS = {
    "queue_duration_seconds": ("Time a request waited for a slot.", _REQUEST_BOUNDS),
    "encode_duration_seconds": ("Time to encode the sources that joined together.", _STEP_BOUNDS),
    "time_to_first_token_seconds": ("From arrival to the first token.", _REQUEST_BOUNDS),
    "inter_token_duration_seconds": ("Between two tokens of one request.", _STEP_BOUNDS),
    "step_duration_seconds": ("A turn of a worker: joins and one step.", _STEP_BOUNDS),
    "batch_rows": ("Rows that shared a step.", _COUNT_BOUNDS),
    "source_tokens": ("Tokens of a source.", _COUNT_BOUNDS),
    "generated_tokens": ("Tokens of an answer.", _COUNT_BOUNDS),
}
_COUNTERS = {
    "source_tokens": "Source tokens encoded.",
    "generated_tokens": "Target tokens of finished answers.",
    "cancelled": "Requests whose caller went away.",
    "step_seconds": "Time in steps.",
    "step_outside_runtime_seconds": "Time in steps, but outside ONNX Runtime.",
}


class EngineGauges(Protocol):
    """What an engine tells when it is asked."""

    slots: int

    @property
    def queue_depth(self) -> int:
        """Requests that wait."""

    @property
    def slots_in_use(self) -> int:
        """Rows that run."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values."""


@dataclass(slots=True)
class EngineFigures:
    """Figures of one model's engine: the observer it tells, and what a scrape reads."""

    model: str
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {
            name: Histogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()
        }
    )
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COUNTERS, 0.0))
    deadlines: dict[str, int] = field(default_factory=lambda: {stage.value: 0 for stage in Stage})
    stops: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def encoded(self, sources: int, tokens: int, duration_s: float) -> None:
        """Sources of one length were encoded together."""
        self.histograms["encode_duration_seconds"].observe(duration_s)
        self.histograms["source_tokens"].observe(tokens // sources, sources)
        self._add("source_tokens", tokens)

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """A turn is over; its length counts once for each row that waited for it."""
        self.histograms["step_duration_seconds"].observe(duration_s)
        self.histograms["inter_token_duration_seconds"].observe(duration_s, rows)
        self.histograms["batch_rows"].observe(rows)
        with self._lock:
            self.totals["step_seconds"] += duration_s
            self.totals["step_outside_runtime_seconds"] += outside_s

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Requests have got their first token."""
        for request in requests:
            timeline = request.timeline
            waited_s = timeline.encode_began_s - timeline.arrived_s
            self.histograms["queue_duration_seconds"].observe(waited_s)
            first_s = timeline.first_token_s - timeline.arrived_s
            self.histograms["time_to_first_token_seconds"].observe(first_s)

    def ended(self, request: Request, event: Event) -> None:
        """A request has finished or failed."""
        if isinstance(event, Finished):
            self.histograms["generated_tokens"].observe(len(event.token_ids))
            self._add("generated_tokens", len(event.token_ids))
            reason = event.stop_reason.value
            with self._lock:
                self.stops[reason] = self.stops.get(reason, 0) + 1
        elif isinstance(event, Failed) and isinstance(event.error, DeadlinePassed):
            with self._lock:
                self.deadlines[event.error.where.value] += 1

    def cancelled(self, request: Request) -> None:
        """A request was cancelled and has left."""
        self._add("cancelled", 1)

    def _add(self, name: str, amount: float) -> None:
        with self._lock:
            self.totals[name] += amount


class _Engines(Collector):
    """Reads the engines at each scrape."""

    def __init__(self) -> None:
        self._engines: list[tuple[EngineFigures, EngineGauges]] = []

    def add(self, figures: EngineFigures, engine: EngineGauges) -> None:
        self._engines = [*self._engines, (figures, engine)]

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing beforehand: what there is depends on the models."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        yield from self._gauges()
        yield from self._counters()
        for name, (text, _) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(f"seqserve_{name}", text, labels=["model"])
            for figures, _ in self._engines:
                buckets, total = figures.histograms[name].buckets()
                family.add_metric([figures.model], buckets, total)
            yield family

    def _gauges(self) -> Iterator[GaugeMetricFamily]:
        gauges: dict[str, tuple[str, Callable[[EngineGauges], float]]] = {
            "queue_depth": ("Requests that wait for a slot.", lambda engine: engine.queue_depth),
            "slots_in_use": ("Rows that run.", lambda engine: engine.slots_in_use),
            "slots": ("Rows that may run at once.", lambda engine: engine.slots),
            "cache_bytes": ("Bytes of keys and values.", lambda engine: engine.cache_bytes),
        }
        for name, (text, read) in gauges.items():
            family = GaugeMetricFamily(f"seqserve_{name}", text, labels=["model"])
            for figures, engine in self._engines:
                family.add_metric([figures.model], read(engine))
            yield family

    def _counters(self) -> Iterator[CounterMetricFamily]:
        for name, text in _COUNTERS.items():
            # A histogram of the same name owns the name without _total, so it is spelled out.
            family = CounterMetricFamily(f"seqserve_{name}_total", text, labels=["model"])
            for figures, _ in self._engines:
                family.add_metric([figures.model], figures.totals[name])
            yield family
        by_label: dict[str, tuple[str, str, Callable[[EngineFigures], dict[str, int]]]] = {
            "deadline_exceeded": (
                "Requests whose deadline passed.", "where", lambda figures: figures.deadlines
            ),
            "stop": ("Answers by why they stopped.", "reason", lambda figures: figures.stops),
        }  # fmt: skip
        for name, (text, label, read) in by_label.items():
            family = CounterMetricFamily(f"seqserve_{name}_total", text, labels=["model", label])
            for figures, _ in self._engines:
                for value, count in dict(read(figures)).items():
                    family.add_metric([figures.model, value], count)
            yield family


class _Calls(Collector):
    """Durations of calls by method."""

    def __init__(self) -> None:
        self._durations: dict[tuple[str, str], Histogram] = {}

    def observe(self, model: str, method: str, duration_s: float) -> None:
        key = (model, method)
        histogram = self._durations.get(key)
        if histogram is None:
            histogram = self._durations.setdefault(key, Histogram(_REQUEST_BOUNDS))
        histogram.observe(duration_s)

    def describe(self) -> list[HistogramMetricFamily]:
        """Nothing beforehand: methods appear when they are called."""
        return []

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "seqserve_request_duration_seconds",
            "Calls from arrival to the last message.",
            labels=["model", "method"],
        )
        for (model, method), histogram in sorted(self._durations.items()):
            buckets, total = histogram.buckets()
            family.add_metric([model, method], buckets, total)
        yield family


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        """Registers everything, so that each name is there from the first scrape on."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._engines = _Engines()
        self._calls = _Calls()
        self.registry.register(self._engines)
        self.registry.register(self._calls)
        self._requests = Counter(
            "seqserve_requests", "Calls by outcome.", ["method", "code", "model"],
            registry=self.registry,
        )  # fmt: skip
        self._rejected = Counter(
            "seqserve_rejected", "Calls refused before they could wait.", ["reason", "model"],
            registry=self.registry,
        )  # fmt: skip
        self._model_info = Gauge(
            "seqserve_model_info", "Models that are loaded.",
            ["model", "version", "precision", "provider"], registry=self.registry,
        )  # fmt: skip
        self._model_loads = Counter(
            "seqserve_model_loads", "Models loaded, by outcome.", ["result"],
            registry=self.registry,
        )  # fmt: skip

    def engine(self, model: str) -> EngineFigures:
        """Makes the observer of one model's engine."""
        return EngineFigures(model)

    def add_engine(self, figures: EngineFigures, engine: EngineGauges) -> None:
        """Shows an engine at each scrape from now on."""
        self._engines.add(figures, engine)

    def model_loaded(self, model: str, version: int, precision: str, provider: str) -> None:
        """Notes a model that is ready."""
        self._model_info.labels(model, str(version), precision, provider).set(1)
        self._model_loads.labels("success").inc()

    def model_failed(self) -> None:
        """Notes a model that could not be loaded."""
        self._model_loads.labels("failure").inc()

    def called(self, model: str, method: str, code: str, duration_s: float) -> None:
        """Notes a call that is over."""
        self._requests.labels(method, code, model).inc()
        self._calls.observe(model, method, duration_s)

    def rejected(self, model: str, reason: str) -> None:
        """Notes a call that was refused."""
        self._rejected.labels(reason, model).inc()
