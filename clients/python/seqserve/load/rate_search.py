"""The highest rate at which a limit holds, as MLPerf's server scenario asks for it.

Source: MLPerf Inference rules, server scenario: Poisson arrivals, a limit on a percentile of the
latency; what is not answered counts as late.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seqserve.load.answer import Answer, percentile

SHARE = 0.99
"""Of requests that must be answered within the limit."""
LEAST_REQUESTS = 100
"""Of a probe; of fewer requests a hundredth is none."""
TRIES = 2
"""At a rate that breaks the limit: something else may have held the machine up."""
# Highest rate that broke the limit by the highest that held it.
_PRECISION = 1.05
# How far it goes from the first rate: a probe at a low one takes long.
_MOST_UP, _MOST_DOWN = 1e6, 32


@dataclass(frozen=True, slots=True)
class Probe:
    """A load at one rate."""

    rate_per_s: float
    p99_ms: float
    """Over all requests; infinite if more than a hundredth failed."""
    holds: bool


def p99_ms(answers: Sequence[Answer]) -> float:
    """Returns the 99th percentile of whole answers; a request that failed took for ever."""
    return 1e3 * percentile([answer.total_s for answer in answers], SHARE)


def highest_rate(probe: Callable[[float], Probe], first_per_s: float) -> list[Probe]:
    """Doubles a rate until it breaks the limit, or halves it until it holds, and then bisects.

    A rate that breaks the limit is tried again, and holds if it holds then.

    Returns:
        All probes, in the order in which they were made.
    """
    probes: list[Probe] = []

    def held(rate_per_s: float) -> bool:
        probes.extend(_tries(probe, rate_per_s))
        return probes[-1].holds

    low = high = first_per_s
    if held(first_per_s):
        while held(high := 2 * low):
            low = high
            if low >= first_per_s * _MOST_UP:
                return probes
    else:
        while not held(low := high / 2):
            high = low
            if low <= first_per_s / _MOST_DOWN:
                return probes
    while high / low > _PRECISION:
        middle = float(f"{math.sqrt(low * high):.4g}")
        if held(middle):
            low = middle
        else:
            high = middle
    return probes


def _tries(probe: Callable[[float], Probe], rate_per_s: float) -> Iterator[Probe]:
    for _ in range(TRIES):
        tried = probe(rate_per_s)
        yield tried
        if tried.holds:
            return


def best_of(probes: Sequence[Probe]) -> Probe | None:
    """Returns the probe at the highest rate below which, as far as was seen, all hold."""
    broken = broken_rate(probes)
    held = [probe for probe in probes if probe.holds and probe.rate_per_s < broken]
    return max(held, key=lambda probe: probe.rate_per_s, default=None)


def broken_rate(probes: Sequence[Probe]) -> float:
    """Returns the lowest rate that never held; infinite if all did."""
    held = {probe.rate_per_s for probe in probes if probe.holds}
    return min(
        (each.rate_per_s for each in probes if each.rate_per_s not in held), default=math.inf
    )
