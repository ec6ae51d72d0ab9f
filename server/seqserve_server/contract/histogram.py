"""A histogram that observes many equal values at the cost of one bisection.

The histogram of ``prometheus_client`` takes a lock for each value; here a step observes all its
rows in one call.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence


def geometric(low: float, high: float, factor: float = 1.5) -> list[float]:
    """Lists bounds from ``low`` to at least ``high``, each ``factor`` times the previous one."""
    count = math.ceil(math.log(high / low, factor) - 1e-9) + 1
    return [float(f"{low * factor**i:.3g}") for i in range(count)]


def powers_of_two(high: int) -> list[float]:
    """Lists the bounds 1, 2, 4, .. up to ``high``."""
    return [float(2**i) for i in range(high.bit_length())]


class Histogram:
    """Counts of values by bucket, and their sum.

    One thread at a time may write; any may read.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        """Takes the rising upper bounds of the buckets; a bucket for larger values is added."""
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> int:
        """Adds a value ``count`` times; returns the index of its bucket."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += count
        self._sum += value * count
        return bucket

    def add(self, other: Histogram) -> None:
        """Adds the counts of a histogram with the same bounds."""
        self._counts = [mine + more for mine, more in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the cumulative counts by upper bound, as Prometheus wants them, and the sum."""
        counts, total = list(self._counts), self._sum
        running, rows = 0, []
        for bound, count in zip([*self._bounds, math.inf], counts, strict=True):
            running += count
            # OpenMetrics wants a whole number to be written as 1.0.
            rows.append(("+Inf" if math.isinf(bound) else str(bound), float(running)))
        return rows, total
