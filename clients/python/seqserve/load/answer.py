"""One request as its caller saw it, and figures of many: percentiles, rates, the share in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self

REFUSALS = {"RESOURCE_EXHAUSTED", "HTTP 429"}
"""Statuses by which a server says that it has too much to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back for one text; moments are of :func:`time.perf_counter`."""

    first_at_s: float = math.inf
    """The first message; the only one, where the answer is not streamed."""
    gaps_s: tuple[float, ...] = ()
    """Seconds between the pieces of a stream."""
    tokens: int = 0
    """Of the target; 0 where the server does not tell."""
    source_tokens: int = 0
    error: str = ""
    """Name of the status; empty where it went well."""
    details: str = ""
    """What the server said of the error."""


def gaps_of(moments_s: Sequence[float]) -> tuple[float, ...]:
    """Returns the times between moments."""
    return tuple(after - before for before, after in pairwise(moments_s))


class Caller(Protocol):
    """Calls one server; connects when it is entered, and can be pickled before."""

    async def __aenter__(self) -> Self:
        """Connects."""

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""

    async def send(self, source: str, timeout_s: float) -> Reply:
        """Sends a text once and waits for the end of its answer, which may be an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request. Times are seconds since it was due."""

    due_s: float
    """When it was due, from the beginning of the run."""
    late_s: float = 0.0
    """How late the load generator was; the wait for a place among those in flight comes after."""
    sent_s: float
    first_s: float = math.inf
    """The first message; the only one, where the answer is not streamed."""
    total_s: float = math.inf
    """The complete answer; infinite where it failed."""
    gaps_s: tuple[float, ...] = ()
    """Between the pieces of a stream."""
    tokens: int = 0
    source_tokens: int = 0
    error: str = ""
    """Name of the status; empty where it went well."""
    details: str = ""
    """What the server said of the error."""


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


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the least value that a share of all values does not exceed (nearest rank)."""
    rank = math.ceil(share * len(values))
    return sorted(values)[max(rank, 1) - 1]


def served_rate(answers: Sequence[Answer], seconds: float) -> float:
    """Returns answers per second, from the beginning to the last answer."""
    served = [answer for answer in answers if not answer.error]
    ended_s = max((answer.due_s + answer.total_s for answer in served), default=0.0)
    return len(served) / max(seconds, ended_s)


def steady_rate(answers: Sequence[Answer], seconds: float) -> float:
    """Returns the answers per second of a closed loop, its first third and its end left out.

    At first no answer can be there yet, and at the end too few requests are left to keep a server
    busy.
    """
    begin_s = seconds / 3
    ended = [answer.due_s + answer.total_s for answer in answers]
    return sum(begin_s <= at_s < seconds for at_s in ended) / (seconds - begin_s)


def share_within(answers: Sequence[Answer], limit_s: float) -> float:
    """Returns the share of requests whose complete answer came within a limit."""
    return sum(answer.total_s <= limit_s for answer in answers) / len(answers)
