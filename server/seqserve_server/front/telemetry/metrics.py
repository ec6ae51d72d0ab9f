"""What Prometheus sees of a server: every call, every model, and each model's engines.

Names and labels are a contract; labels are few and bounded, never text, ids or addresses. The id of
a call stands in an exemplar alone.
Buckets are geometric, so that quantiles are as exact at 1 ms as at 10 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from seqserve_server.contract.histogram import Histogram
from seqserve_server.contract.stats import REQUEST_BOUNDS
from seqserve_server.front.telemetry.engine_metrics import EnginesCollector, ReportingEngine
from seqserve_server.front.telemetry.outcomes import rejection_of

ReadVersions: TypeAlias = Callable[[], list[tuple[str, int, str]]]
"""Gives name, number and state of every version, from any thread."""


class _Durations(Collector):
    """Durations of calls by model and method, each bucket with the last call that fell into it."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str], tuple[Histogram, dict[int, Exemplar]]] = {}

    def observe(self, model: str, method: str, duration_s: float, call: dict[str, str]) -> None:
        key = (model, method)
        found = self._histograms.get(key)
        if found is None:
            found = self._histograms.setdefault(key, (Histogram(REQUEST_BOUNDS), {}))
        histogram, last = found
        last[histogram.observe(duration_s)] = Exemplar(call, duration_s, time.time())

    def describe(self) -> list[HistogramMetricFamily]:
        """Nothing beforehand: methods appear when they are called."""
        return []

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "seqserve_request_duration_seconds",
            "Calls from arrival to the last message.",
            labels=["model", "method"],
        )
        for key, (histogram, last) in sorted(self._histograms.items(), key=itemgetter(0)):
            buckets, total = histogram.buckets()
            rows = [
                (bound, count, last[number]) if number in last else (bound, count)
                for number, (bound, count) in enumerate(buckets)
            ]
            family.add_metric(key, rows, total)
        yield family


class _Versions(Collector):
    """The state of each version, as it is at the scrape."""

    def __init__(self) -> None:
        self.read: ReadVersions = list

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing beforehand: versions come and go."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "seqserve_model_state",
            "Versions in the repository, 1 for the state they are in.",
            labels=["model", "version", "state"],
        )
        for model, version, state in self.read():
            family.add_metric([model, str(version), state], 1)
        yield family


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        """Registers everything, so that each name is there from the first scrape on."""
        # A second series for each counter, with the time of its start, that no rule here reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._engines = EnginesCollector()
        self._durations = _Durations()
        self._versions = _Versions()
        self.registry.register(self._engines)
        self.registry.register(self._durations)
        self.registry.register(self._versions)
        self._requests = self._counter("requests", "Calls by outcome.", "method", "code", "model")
        self._rejected = self._counter(
            "rejected", "Requests refused before they could wait.", "reason", "model"
        )
        self._model_loads = self._counter("model_loads", "Models loaded, by outcome.", "result")
        for result in ("success", "failure"):
            self._model_loads.labels(result)
        self._model_info = Gauge(
            "seqserve_model_info",
            "Models that are loaded.",
            ["model", "version", "precision", "provider"],
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"seqserve_{name}", text, labels, registry=self.registry)

    def show_versions(self, read: ReadVersions) -> None:
        """Shows the state of each version at each scrape from now on."""
        self._versions.read = read

    def model_loaded(
        self, model: str, version: int, precision: str, provider: str, engine: ReportingEngine
    ) -> None:
        """Notes a version that is ready, and shows its engine at each scrape from now on."""
        self._engines.add(model, engine)
        self._model_info.labels(model, str(version), precision, provider).set(1)
        self._model_loads.labels("success").inc()

    def model_unloaded(
        self, model: str, version: int, precision: str, provider: str, engine: ReportingEngine
    ) -> None:
        """Notes a version that is no longer there; what its engine has counted stays counted."""
        self._engines.remove(model, engine)
        self._model_info.remove(model, str(version), precision, provider)

    def model_failed(self) -> None:
        """Notes a model that could not be loaded."""
        self._model_loads.labels("failure").inc()

    def called(
        self, model: str, method: str, code: str, duration_s: float, call: dict[str, str]
    ) -> None:
        """Notes a call that is over; ``call`` is what finds it again, a trace or a line of log."""
        self._requests.labels(method, code, model).inc()
        self._durations.observe(model, method, duration_s, call)

    def refused(self, model: str, error: Exception) -> None:
        """Notes what a call, or one of its many requests, ended with, where that is a refusal."""
        if reason := rejection_of(error):
            self._rejected.labels(reason, model).inc()
