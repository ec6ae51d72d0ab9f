"""What the cache of answers holds and spares, for each version of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from seqserve_server.front.telemetry.version import NAMES, VersionLabels


class Lookup(Enum):
    """How a request found its answer; the values are those of the label."""

    HIT = "hit"
    """It was kept."""
    JOINED = "joined"
    """An equal request was under way, and its answer served both."""
    MISS = "miss"
    """The engine computed it."""


@dataclass(slots=True)
class CacheCounts:
    """Counts of one version."""

    lookups: dict[Lookup, int] = field(default_factory=lambda: dict.fromkeys(Lookup, 0))
    evictions: int = 0
    """Answers that made room for newer ones."""
    held_bytes: int = 0
    """What its answers take now."""


class CacheMetrics(Collector):
    """The cache of a server; written by the event loop, read by any thread."""

    def __init__(self) -> None:
        """Starts without versions."""
        self._counts: dict[VersionLabels, CacheCounts] = {}

    def of(self, version: VersionLabels) -> CacheCounts:
        """Gives the counts of a version; one that is loaded again goes on with them."""
        return self._counts.setdefault(version, CacheCounts())

    def forget(self, version: VersionLabels) -> None:
        """Ends the series of a version."""
        self._counts.pop(version, None)

    def collect(self) -> Iterator[Metric]:
        """Yields every family with its current values."""
        lookups = CounterMetricFamily(
            "seqserve_answer_cache_lookups",
            "Requests by where their answer came from.",
            labels=[*NAMES, "result"],
        )
        evictions = CounterMetricFamily(
            "seqserve_answer_cache_evictions",
            "Kept answers that made room for newer ones.",
            labels=NAMES,
        )
        held = GaugeMetricFamily(
            "seqserve_answer_cache_bytes", "Memory of kept answers.", labels=NAMES
        )
        for version, counts in sorted(self._counts.copy().items(), key=lambda item: item[0]):
            for result, count in counts.lookups.items():
                lookups.add_metric([*version, result.value], count)
            evictions.add_metric(version, counts.evictions)
            held.add_metric(version, counts.held_bytes)
        yield from (lookups, evictions, held)
