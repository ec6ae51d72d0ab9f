"""When requests arrive, and with which texts; equal seeds give equal arrivals."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come."""

    due_s: float
    """Seconds from the beginning."""
    source: str


def random_arrivals(
    rate_per_s: float, sources: Sequence[str], seed: int | str, burstiness: float = 1.0
) -> Iterator[Arrival]:
    """Draws arrivals without end, which do not wait for answers.

    Args:
        rate_per_s: Mean arrivals in a second; infinite if all arrive at once.
        sources: Texts to draw from.
        seed: Of the random numbers.
        burstiness: Shape of the gamma distribution of the gaps: 1 is a Poisson process, less comes
            in bursts, more is steadier.
    """
    draw = random.Random(seed)
    mean_s = 0.0 if math.isinf(rate_per_s) else 1 / rate_per_s
    due_s = 0.0
    while True:
        due_s += draw.gammavariate(burstiness, mean_s / burstiness) if mean_s else 0.0
        yield Arrival(due_s, draw.choice(sources))


def traced_arrivals(
    due_s: Iterable[float], sources: Sequence[str], seed: int | str
) -> Iterator[Arrival]:
    """Gives each moment of a trace a text."""
    draw = random.Random(seed)
    return (Arrival(at_s, draw.choice(sources)) for at_s in due_s)


def within(
    arrivals: Iterable[Arrival], *, seconds: float | None = None, count: int | None = None
) -> Iterator[Arrival]:
    """Ends arrivals after some time, or some requests, whichever comes first."""
    counted = islice(arrivals, count)
    if seconds is None:
        return counted
    return takewhile(lambda arrival: arrival.due_s < seconds, counted)


def draw_for(
    sources: Sequence[str], seconds: float | None, seed: int | str, count: int | None = None
) -> Iterator[str]:
    """Draws texts until the time, which begins with the first, is over or they are enough."""
    draw = random.Random(seed)
    end_s = math.inf if seconds is None else time.perf_counter() + seconds
    drawn = 0
    while time.perf_counter() < end_s and (count is None or drawn < count):
        yield draw.choice(sources)
        drawn += 1
