"""Calls by outcome, and how long they took, for each version of a model.

Refusals come at once, so durations are kept by status: a quantile over all calls would sink as the
server turns more of them away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from seqserve_server.contract.histogram import Histogram
from seqserve_server.contract.stats import REQUEST_BOUNDS
from seqserve_server.front.telemetry.version import VersionLabels


class Kind(NamedTuple):
    """Calls that share their series, next to those of the same version."""

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
        """Starts without calls."""
        self._calls: dict[VersionLabels, dict[Kind, Calls]] = {}

    def observe(
        self, version: VersionLabels, kind: Kind, duration_s: float, exemplar: dict[str, str]
    ) -> None:
        """Counts a call that has ended."""
        calls = self._calls.setdefault(version, {}).setdefault(kind, Calls())
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
        requests = CounterMetricFamily(
            "seqserve_requests", "Calls by outcome.", labels=["method", "code", "model", "version"]
        )
        durations = HistogramMetricFamily(
            "seqserve_request_duration_seconds",
            "Calls from arrival to the last message, by outcome.",
            labels=["method", "code", "model", "version"],
        )
        for version in sorted(self._calls.copy()):
            for kind, calls in sorted(self.of(version).items()):
                labels = [*kind, *version]
                rows, total = _rows(calls)
                requests.add_metric(labels, rows[-1][1])
                durations.add_metric(labels, rows, total)
        yield requests
        yield durations


def _rows(calls: Calls) -> tuple[list[tuple[str, float] | tuple[str, float, Exemplar]], float]:
    buckets, total = calls.durations.buckets()
    exemplars = calls.exemplars.copy()
    rows = [
        (bound, count, exemplars[number]) if number in exemplars else (bound, count)
        for number, (bound, count) in enumerate(buckets)
    ]
    return rows, total
