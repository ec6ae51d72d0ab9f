"""Collects the metrics of all engines at each scrape.

Each version of a model has its own engine; the series of a model are sums over its versions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from prometheus_client import core
from prometheus_client.registry import Collector

from seqserve_server.contract.messages import StatsReply
from seqserve_server.contract.request import Priority
from seqserve_server.contract.stats import COUNTERS, HISTOGRAMS, EngineStats

_TIMEOUT_S = 2.0


class ReportingEngine(Protocol):
    """An engine that can be asked for its stats."""

    slots: int
    """Maximum number of running rows."""
    cache_bytes: int
    """Size of the key and value caches."""

    @property
    def last_reply(self) -> StatsReply:
        """Its last reply."""

    def ask(self) -> Future[StatsReply]:
        """Asks for a new reply; may be called from any thread."""


@dataclass(slots=True)
class _Model:
    """Sums over the engines of a model."""

    queue_depth: int = 0
    low_queue_depth: int = 0
    slots_in_use: int = 0
    slots: int = 0
    cache_bytes: int = 0
    stats: EngineStats = field(default_factory=EngineStats)

    def add(self, engine: ReportingEngine, report: StatsReply) -> None:
        self.queue_depth += report.queue_depth
        self.low_queue_depth += report.low_queue_depth
        self.slots_in_use += report.slots_in_use
        self.slots += engine.slots
        self.cache_bytes += engine.cache_bytes
        self.stats.add(report.stats)


_GAUGES = {
    "slots_in_use": "Rows that run.",
    "slots": "Rows that may run at once.",
    "cache_bytes": "Bytes of keys and values.",
}
"""Help text of each sum that is a gauge of the same name."""


class EnginesCollector(Collector):
    """Asks all engines for their stats at each scrape."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        """Starts without engines; a late engine is shown with its last reply."""
        self._timeout_s = timeout_s
        self._engines: dict[str, list[ReportingEngine]] = {}
        # Stats of engines that were removed, so that counters never fall.
        self._past: dict[str, EngineStats] = {}
        self._lock = Lock()

    def add(self, model: str, engine: ReportingEngine) -> None:
        """Adds an engine of a model."""
        with self._lock:
            self._engines.setdefault(model, []).append(engine)

    def remove(self, model: str, engine: ReportingEngine) -> None:
        """Removes an engine; its last stats stay in the counters of its model."""
        with self._lock:
            self._engines[model].remove(engine)
            self._past.setdefault(model, EngineStats()).add(engine.last_reply.stats)

    def collect(self) -> Iterator[core.Metric]:
        """Yields every family with its current values."""
        models = self._ask()
        yield from _gauges(models)
        yield from _counters(models)
        yield from _labelled_counters(models)
        yield from _histograms(models)

    def _ask(self) -> dict[str, _Model]:
        """Sends all questions first, so that the engines answer in parallel."""
        models, asked = {}, []
        with self._lock:
            for name, engines in self._engines.items():
                model = models[name] = _Model()
                model.stats.add(self._past.get(name, EngineStats()))
                asked += [(model, engine, engine.ask()) for engine in engines]
        end_s = time.monotonic() + self._timeout_s
        for model, engine, future in asked:
            try:
                report = future.result(max(0.0, end_s - time.monotonic()))
            except TimeoutError:
                report = engine.last_reply
            model.add(engine, report)
        return models


_Models = dict[str, _Model]


def _gauges(models: _Models) -> Iterator[core.GaugeMetricFamily]:
    waiting = core.GaugeMetricFamily(
        "seqserve_queue_depth",
        "Requests that wait, for a slot or for the scorer.",
        labels=["model", "priority"],
    )
    for label, model in models.items():
        normal = model.queue_depth - model.low_queue_depth
        waiting.add_metric([label, Priority.NORMAL.value], normal)
        waiting.add_metric([label, Priority.LOW.value], model.low_queue_depth)
    yield waiting
    for name, text in _GAUGES.items():
        family = core.GaugeMetricFamily(f"seqserve_{name}", text, labels=["model"])
        for label, model in models.items():
            family.add_metric([label], getattr(model, name))
        yield family


def _counters(models: _Models) -> Iterator[core.Metric]:
    for name, text in COUNTERS.items():
        family: core.CounterMetricFamily | core.UnknownMetricFamily
        if name in HISTOGRAMS:
            # OpenMetrics names a counter without its suffix, so both families would have one name.
            family = core.UnknownMetricFamily(f"seqserve_{name}_total", text, labels=["model"])
        else:
            family = core.CounterMetricFamily(f"seqserve_{name}", text, labels=["model"])
        for label, model in models.items():
            family.add_metric([label], model.stats.totals[name])
        yield family


def _labelled_counters(models: _Models) -> Iterator[core.CounterMetricFamily]:
    late = core.CounterMetricFamily(
        "seqserve_deadline_exceeded", "Requests whose deadline passed.", labels=["model", "where"]
    )
    stops = core.CounterMetricFamily(
        "seqserve_stop", "Answers by why they stopped.", labels=["model", "reason"]
    )
    for label, model in models.items():
        for where, count in model.stats.deadlines.items():
            late.add_metric([label, where], count)
        for reason, count in model.stats.stops.items():
            stops.add_metric([label, reason], count)
    yield late
    yield stops


def _histograms(models: _Models) -> Iterator[core.HistogramMetricFamily]:
    for name, (text, _) in HISTOGRAMS.items():
        family = core.HistogramMetricFamily(f"seqserve_{name}", text, labels=["model"])
        for label, model in models.items():
            buckets, total = model.stats.histograms[name].buckets()
            family.add_metric([label], buckets, total)
        yield family
