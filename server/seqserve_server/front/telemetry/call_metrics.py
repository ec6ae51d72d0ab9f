"""Metrics of calls, by outcome, and of cached answers, for each version of a model.

Refusals take no time, so durations are counted by status: otherwise a quantile over all calls would
sink when the server refuses more calls.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from seqserve_server.contract.stats import REQUEST_BOUNDS, CacheCounts, Histogram


class Kind(NamedTuple):
    """Labels of a series of one version: method and status."""

    method: str
    code: str


@dataclass(slots=True)
class Calls:
    """Calls of one kind and version."""

    durations: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    """In seconds."""
    exemplars: dict[int, Exemplar] = field(default_factory=dict)
    """The last call of each bucket."""
    last_s: float = 0.0
    """Unix time at which the last one ended."""


class CallMetrics(Collector):
    """The calls of a server; written by the event loop, read by any thread."""

    def __init__(self) -> None:
        self._calls: defaultdict[VersionLabels, defaultdict[Kind, Calls]] = defaultdict(
            lambda: defaultdict(Calls)
        )

    def observe(
        self, version: VersionLabels, kind: Kind, duration_s: float, exemplar: dict[str, str]
    ) -> None:
        """Counts a call that has ended."""
        calls = self._calls[version][kind]
        bucket = calls.durations.observe(duration_s)
        calls.last_s = time.time()
        calls.exemplars[bucket] = Exemplar(exemplar, duration_s, calls.last_s)

    def of(self, version: VersionLabels) -> dict[Kind, Calls]:
        """Returns the calls of a version."""
        return self._calls.get(version, {}).copy()

    def forget(self, version: VersionLabels) -> None:
        """Ends the series of a version."""
        self._calls.pop(version, None)

    def collect(self) -> Iterator[Metric]:
        """Yields both families with their current values."""
        names = [*Kind._fields, *NAMES]
        requests = counter("requests", "Calls by outcome.", names)
        durations = HistogramMetricFamily(
            "seqserve_request_duration_seconds",
            "Calls from arrival to the last message, by outcome.",
            labels=names,
        )
        for version in sorted(self._calls.copy()):
            for kind, calls in sorted(self.of(version).items()):
                labels = [*kind, *version]
                buckets, total = calls.durations.buckets()
                exemplars = calls.exemplars.copy()
                rows = [
                    (bound, count, exemplars[number]) if number in exemplars else (bound, count)
                    for number, (bound, count) in enumerate(buckets)
                ]
                requests.add_metric(labels, rows[-1][1])
                durations.add_metric(labels, rows, total)
        yield requests
        yield durations


class VersionLabels(NamedTuple):
    """Values of the labels ``model`` and ``version``."""

    model: str
    version: str

    @classmethod
    def of(cls, model: str, version: int) -> VersionLabels:
        """Returns the labels of a version; version 0, of calls without one, is empty."""
        return cls(model, str(version or ""))


NAMES = list(VersionLabels._fields)


def counter(name: str, text: str, labels: Sequence[str] = NAMES) -> CounterMetricFamily:
    """Makes a family of counters, of versions if no labels are given."""
    return CounterMetricFamily(f"seqserve_{name}", text, labels=labels)


def gauge(name: str, text: str, labels: Sequence[str] = NAMES) -> GaugeMetricFamily:
    """Makes a family of gauges, of versions if no labels are given."""
    return GaugeMetricFamily(f"seqserve_{name}", text, labels=labels)


class CacheMetrics(Collector):
    """The cache of a server; written by the event loop, read by any thread."""

    def __init__(self) -> None:
        self._counts: dict[VersionLabels, CacheCounts] = {}

    def of(self, version: VersionLabels) -> CacheCounts:
        """Returns the counts of a version; one that is loaded again goes on with them."""
        return self._counts.setdefault(version, CacheCounts())

    def forget(self, version: VersionLabels) -> None:
        """Ends the series of a version."""
        self._counts.pop(version, None)

    def collect(self) -> Iterator[Metric]:
        """Yields every family with its current values."""
        text = "Requests by where their answer came from."
        lookups = counter("answer_cache_lookups", text, [*NAMES, "result"])
        text = "Kept answers that made room for newer ones."
        evictions = counter("answer_cache_evictions", text)
        held = gauge("answer_cache_bytes", "Memory of kept answers.")
        for version, counts in sorted(self._counts.copy().items(), key=lambda item: item[0]):
            for result, count in counts.lookups.items():
                lookups.add_metric([*version, result], count)
            evictions.add_metric(version, counts.evictions)
            held.add_metric(version, counts.held_bytes)
        yield from (lookups, evictions, held)
