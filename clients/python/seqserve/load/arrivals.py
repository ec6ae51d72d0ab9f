"""When requests arrive, and with which texts; equal seeds give equal arrivals."""

import json
import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path

from seqserve.errors import OptionError


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come."""

    due_s: float
    """Seconds from the beginning."""
    source: str


def random_arrivals(
    rate_per_s: float, sources: Sequence[str], seed: int | str, burstiness: float = 1.0
) -> Iterator[Arrival]:
    """Draws arrivals without end, which do not wait for answers."""
    draw = random.Random(seed)
    mean_s = 0.0 if math.isinf(rate_per_s) else 1 / rate_per_s
    due_s = 0.0
    while True:
        due_s += draw.gammavariate(burstiness, mean_s / burstiness) if mean_s else 0.0
        yield Arrival(due_s, draw.choice(sources))


def traced_arrivals(
    due_s: Iterable[float], sources: Sequence[str], seed: int | str
) -> Iterator[Arrival]:
    """Assigns a text to each moment of a trace."""
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


SENTENCES = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()
"""Sentences of everyday lengths, in English, which the shipped model reads."""


def texts_of(lines: Iterable[str], name: str, *, is_json: bool) -> list[str]:
    """Reads one text a line; empty lines have none. The texts keep the mix of their lengths."""
    texts = [
        _text_of(line, f"{name}: line {number}") if is_json else line.strip()
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not texts:
        raise OptionError(f"{name}: has no text")
    return texts


def _text_of(line: str, place: str) -> str:
    try:
        facts = json.loads(line)
    except ValueError as error:
        raise OptionError(f"{place} is not JSON: {error}") from None
    text = facts.get("prompt", facts.get("source")) if isinstance(facts, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise OptionError(f"{place} has no text in 'prompt' or 'source'")
    return text


def moments_of(lines: Iterable[str], name: str) -> list[float]:
    """Reads the moments of a trace, seconds in ascending order; the first becomes 0."""
    moments_s: list[float] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            at_s = float(line)
        except ValueError:
            reason = f"line {number}: {line.strip()!r:.80} is not a number of seconds"
            raise OptionError(f"{name}: {reason}") from None
        # NaN is not at least anything.
        if not at_s >= (moments_s[-1] if moments_s else at_s) or abs(at_s) == float("inf"):
            raise OptionError(f"{name}: line {number}: {line.strip()} is not in order")
        moments_s.append(at_s)
    if not moments_s:
        raise OptionError(f"{name}: has no moment")
    return [at_s - moments_s[0] for at_s in moments_s]
