"""Prometheus metrics of a server: calls, models and engines.

Names and labels are part of the API. The values of a label are few and bounded: no text, ids or
addresses; only an exemplar has the id of a call. Histogram buckets are geometric, so that quantiles
have the same relative precision at 1 ms as at 10 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TypeAlias

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from seqserve_server.contract.histogram import Histogram
from seqserve_server.contract.stats import REQUEST_BOUNDS
from seqserve_server.front.telemetry.engine_metrics import EnginesCollector, ReportingEngine
from seqserve_server.front.telemetry.outcomes import rejection_of

ReadVersions: TypeAlias = Callable[[], list[tuple[str, int, str]]]
"""Returns name, number and state of every version; called from any thread."""


class _Durations(Collector):
    """Call durations by model and method; each bucket keeps its last call as an exemplar."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str], tuple[Histogram, dict[int, Exemplar]]] = {}

    def observe(self, model: str, method: str, duration_s: float, call: dict[str, str]) -> None:
        key = (model, method)
        found = self._histograms.get(key)
        if found is None:
            found = self._histograms.setdefault(key, (Histogram(REQUEST_BOUNDS), {}))
        histogram, last = found
        last[histogram.observe(duration_s)] = Exemplar(call, duration_s, time.time())

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
    """The state of each version at the time of the scrape."""

    def __init__(self) -> None:
        self.read: ReadVersions = list

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
        """Registers all metrics, so that each name is there from the first scrape on."""
        # They would add a series with the start time to each counter, which no rule of ours reads.
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        prometheus.PlatformCollector(registry=self.registry)
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
        self._model_info = prometheus.Gauge(
            "seqserve_model_info",
            "Models that are loaded.",
            ["model", "version", "precision", "provider"],
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> prometheus.Counter:
        return prometheus.Counter(f"seqserve_{name}", text, labels, registry=self.registry)

    def show_answers(
        self, count_bytes: Callable[[], int], count_waiting: Callable[[], int]
    ) -> None:
        """Sets the functions that read at each scrape what answers hold, and what waits for it."""
        for name, text, count in (
            ("answer_bytes", "Reserved for answers that are not taken yet.", count_bytes),
            ("answers_waiting", "Calls that wait for memory for their answer.", count_waiting),
        ):
            gauge = prometheus.Gauge(f"seqserve_{name}", text, registry=self.registry)
            gauge.set_function(count)

    def show_versions(self, read: ReadVersions) -> None:
        """Sets the function that reads the states of all versions at each scrape."""
        self._versions.read = read

    def model_loaded(
        self, model: str, version: int, precision: str, provider: str, engine: ReportingEngine
    ) -> None:
        """Counts a version that is ready, and adds its engine to the scrapes."""
        self._engines.add(model, engine)
        self._model_info.labels(model, str(version), precision, provider).set(1)
        self._model_loads.labels("success").inc()

    def model_unloaded(
        self, model: str, version: int, precision: str, provider: str, engine: ReportingEngine
    ) -> None:
        """Removes the engine of a version from the scrapes; its counters stay in the sums."""
        self._engines.remove(model, engine)
        self._model_info.remove(model, str(version), precision, provider)

    def model_failed(self) -> None:
        """Counts a version that could not be loaded."""
        self._model_loads.labels("failure").inc()

    def called(
        self, model: str, method: str, code: str, duration_s: float, call: dict[str, str]
    ) -> None:
        """Counts a finished call; the exemplar ``call`` is the id of its trace or log line."""
        self._requests.labels(method, code, model).inc()
        self._durations.observe(model, method, duration_s, call)

    def refused(self, model: str, error: Exception) -> None:
        """Counts a call, or one request of a bulk call, if its error is a refusal."""
        if reason := rejection_of(error):
            self._rejected.labels(reason, model).inc()
