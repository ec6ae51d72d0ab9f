"""Latency statistics: percentiles, the share in time, and the highest rate that holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request as its caller saw it. Times are seconds since it was due, not since it was sent.

    Counted from the sending, the wait of a request that a slow server kept from being sent would
    be missing; so would be the delay of a load generator that does not keep up.
    """

    due_s: float
    """When it was due, from the beginning of the run."""
    sent_s: float
    first_s: float = math.inf
    """The first message; the only one, where the answer is not streamed."""
    total_s: float = math.inf
    """The complete answer; infinite where it failed."""
    tokens: int = 0
    error: str = ""
    """Name of the status; empty where it went well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Of a time in seconds, over all requests: a failed request took for ever."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quantiles:
        """Computes the quantiles of some times."""
        p50, p90, p99 = (percentile(values, share) for share in (0.5, 0.9, 0.99))
        return cls(p50=p50, p90=p90, p99=p99)


@dataclass(frozen=True, slots=True)
class HighestRate:
    """The highest rate at which a limit holds."""

    per_s: float
    """0 where not even the lowest rate measured holds it."""
    is_bound: bool
    """Whether it is the last rate known to hold it, because no measured rate breaks it."""


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the least value that a share of all values does not exceed (nearest rank)."""
    rank = math.ceil(share * len(values))
    return sorted(values)[max(rank, 1) - 1]


def served_rate(answers: Sequence[Answer], seconds: float) -> float:
    """Returns answers per second, from the beginning to the last answer.

    Args:
        answers: All requests, failed requests too.
        seconds: How long requests were sent.
    """
    served = [answer for answer in answers if not answer.error]
    ended_s = max((answer.due_s + answer.total_s for answer in served), default=0.0)
    return len(served) / max(seconds, ended_s)


def steady_rate(answers: Sequence[Answer], seconds: float) -> float:
    """Returns the answers per second of a closed loop, its first third and its end left out.

    At first no answer can be there yet, and at the end too few requests are left to keep a server
    busy.

    Args:
        answers: All of them.
        seconds: How long requests were sent.
    """
    begin_s = seconds / 3
    ended = [answer.due_s + answer.total_s for answer in answers]
    return sum(begin_s <= at_s < seconds for at_s in ended) / (seconds - begin_s)


def share_within(answers: Sequence[Answer], limit_s: float) -> float:
    """Returns the share of requests whose complete answer came within a limit."""
    return sum(answer.total_s <= limit_s for answer in answers) / len(answers)


def highest_rate(points: Sequence[tuple[float, float]], limit_s: float) -> HighestRate:
    """Finds where a latency crosses its limit for the first time, linear between the points.

    Args:
        points: Rates, ascending, and the latency at each in seconds, which may be infinite.
        limit_s: Latency allowed.
    """
    held: tuple[float, float] | None = None
    for rate, latency_s in points:
        if latency_s > limit_s:
            if held is None:
                return HighestRate(0.0, is_bound=False)
            if math.isinf(latency_s):
                return HighestRate(held[0], is_bound=True)
            share = (limit_s - held[1]) / (latency_s - held[1])
            return HighestRate(held[0] + share * (rate - held[0]), is_bound=False)
        held = rate, latency_s
    return HighestRate(held[0] if held else 0.0, is_bound=held is not None)
