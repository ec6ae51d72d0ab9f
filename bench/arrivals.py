"""Arrival times of open-loop requests: a Poisson process that does not wait for answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come."""

    due_s: float
    """Seconds from the beginning."""
    source: str


def poisson(
    rate_per_s: float, seconds: float, sources: Sequence[str], seed: int | str
) -> list[Arrival]:
    """Draws the arrivals of a Poisson process, each with a source drawn at random.

    The same arguments give the same arrivals, so that every peer gets the same ones.

    Args:
        rate_per_s: Mean arrivals in a second.
        seconds: No arrival is due later.
        sources: What to draw from.
        seed: Of the random numbers.
    """
    drawn = random.Random(seed)
    arrivals: list[Arrival] = []
    due_s = drawn.expovariate(rate_per_s)
    while due_s < seconds:
        arrivals.append(Arrival(due_s, drawn.choice(sources)))
        due_s += drawn.expovariate(rate_per_s)
    return arrivals
