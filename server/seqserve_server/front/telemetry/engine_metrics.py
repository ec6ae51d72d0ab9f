"""What Prometheus sees of the engines: their statistics and their state, asked for at each scrape.

A model may have several versions, each with an engine of its own; the model's statistics are the
sum of theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from seqserve_server.contract.messages import StatsReply
from seqserve_server.contract.request import Priority
from seqserve_server.contract.stats import COUNTERS, HISTOGRAMS, EngineStats

# An engine that does not answer within it is shown as it was.
_PATIENCE_S = 2.0


class ReportingEngine(Protocol):
    """An engine that tells how it is doing."""

    slots: int
    """Rows that may run at once."""
    cache_bytes: int
    """Bytes of keys and values."""
    last_reply: StatsReply
    """The newest statistics."""

    def ask(self) -> Future[StatsReply]:
        """Asks; from any thread."""


@dataclass(slots=True)
class _Model:
    """What all engines of a model have told."""

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


_GAUGES: dict[str, tuple[str, Callable[[_Model], int]]] = {
    "slots_in_use": ("Rows that run.", lambda model: model.slots_in_use),
    "slots": ("Rows that may run at once.", lambda model: model.slots),
    "cache_bytes": ("Bytes of keys and values.", lambda model: model.cache_bytes),
}


class EnginesCollector(Collector):
    """Asks the engines at each scrape."""

    def __init__(self) -> None:
        """Begins with no model."""
        self._engines: dict[str, list[ReportingEngine]] = {}
        # Of engines that were taken away: counters never fall.
        self._past: dict[str, EngineStats] = {}
        self._lock = Lock()

    def add(self, model: str, engine: ReportingEngine) -> None:
        """Shows one more engine of a model."""
        with self._lock:
            self._engines.setdefault(model, []).append(engine)

    def remove(self, model: str, engine: ReportingEngine) -> None:
        """Shows an engine no longer; its last statistics stay part of the model's."""
        with self._lock:
            self._engines[model].remove(engine)
            self._past.setdefault(model, EngineStats()).add(engine.last_reply.stats)

    def describe(self) -> list[GaugeMetricFamily]:
        """Tells nothing beforehand: what there is depends on the models."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        """Gives every family with the values of now."""
        models = self._ask()
        yield from _gauges(models)
        yield from _counters(models)
        yield from _labelled_counters(models)
        yield from _histograms(models)

    def _ask(self) -> dict[str, _Model]:
        """Asks all engines, so that none waits for another."""
        models, asked = {}, []
        with self._lock:
            for name, engines in self._engines.items():
                model = models[name] = _Model()
                model.stats.add(self._past.get(name, EngineStats()))
                asked += [(model, engine, engine.ask()) for engine in engines]
        end_s = time.monotonic() + _PATIENCE_S
        for model, engine, future in asked:
            try:
                report = future.result(max(0.0, end_s - time.monotonic()))
            except TimeoutError:
                report = engine.last_reply
            model.add(engine, report)
        return models


_Models = dict[str, _Model]


def _gauges(models: _Models) -> Iterator[GaugeMetricFamily]:
    waiting = GaugeMetricFamily(
        "seqserve_queue_depth",
        "Requests that wait, for a slot or for the scorer.",
        labels=["model", "priority"],
    )
    for label, model in models.items():
        normal = model.queue_depth - model.low_queue_depth
        waiting.add_metric([label, Priority.NORMAL.value], normal)
        waiting.add_metric([label, Priority.LOW.value], model.low_queue_depth)
    yield waiting
    for name, (text, read) in _GAUGES.items():
        family = GaugeMetricFamily(f"seqserve_{name}", text, labels=["model"])
        for label, model in models.items():
            family.add_metric([label], read(model))
        yield family


def _counters(models: _Models) -> Iterator[CounterMetricFamily]:
    for name, text in COUNTERS.items():
        family = CounterMetricFamily(f"seqserve_{name}", text, labels=["model"])
        for label, model in models.items():
            family.add_metric([label], model.stats.totals[name])
        yield family


def _labelled_counters(models: _Models) -> Iterator[CounterMetricFamily]:
    late = CounterMetricFamily(
        "seqserve_deadline_exceeded",
        "Requests whose deadline passed.",
        labels=["model", "where"],
    )
    stops = CounterMetricFamily(
        "seqserve_stop", "Answers by why they stopped.", labels=["model", "reason"]
    )
    for label, model in models.items():
        for where, count in model.stats.deadlines.items():
            late.add_metric([label, where], count)
        for reason, count in model.stats.stops.items():
            stops.add_metric([label, reason], count)
    yield late
    yield stops


def _histograms(models: _Models) -> Iterator[HistogramMetricFamily]:
    for name, (text, _) in HISTOGRAMS.items():
        family = HistogramMetricFamily(f"seqserve_{name}", text, labels=["model"])
        for label, model in models.items():
            buckets, total = model.stats.histograms[name].buckets()
            family.add_metric([label], buckets, total)
        yield family
