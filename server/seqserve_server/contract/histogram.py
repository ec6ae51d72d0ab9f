"""A histogram that costs a bisection to observe, however many values it is told at once.

Prometheus' own takes a lock for each value; a step tells of all its rows in one call here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence


def geometric(low: float, high: float, factor: float = 1.5) -> list[float]:
    """Lists bounds from ``low`` to at least ``high``, each ``factor`` times the one before."""
    count = math.ceil(math.log(high / low, factor) - 1e-9) + 1
    return [float(f"{low * factor**i:.3g}") for i in range(count)]


def powers_of_two(high: int) -> list[float]:
    """Lists the bounds 1, 2, 4, .. up to ``high``."""
    return [float(2**i) for i in range(high.bit_length())]


class Histogram:
    """Counts of values by bucket, and their sum.

    One thread at a time may tell it something; any may read.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        """Takes the upper bounds of the buckets, rising; one for all larger values is added."""
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> int:
        """Takes a value that was seen ``count`` times; gives the number of its bucket."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += count
        self._sum += value * count
        return bucket

    def add(self, other: Histogram) -> None:
        """Takes all that another one of the same bounds has been told."""
        self._counts = [mine + more for mine, more in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Gives the running totals by upper bound, as Prometheus wants them, and the sum."""
        counts, total = list(self._counts), self._sum
        running, rows = 0, []
        for bound, count in zip([*self._bounds, math.inf], counts, strict=True):
            running += count
            # OpenMetrics wants a whole number to be written as 1.0.
            rows.append(("+Inf" if math.isinf(bound) else str(bound), float(running)))
        return rows, total
