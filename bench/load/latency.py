"""Latencies of a server: percentiles, the share in time, and the highest rate that holds."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


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


@dataclass(frozen=True, slots=True)
class Run:
    """One turn of a server."""

    answers: list[Answer]
    seconds: float
    """How long requests were sent."""
    generator_cpu_share: float
    """CPU seconds of the load generator a second."""

    @property
    def total(self) -> Quantiles:
        """Times of complete answers."""
        return Quantiles.of([answer.total_s for answer in self.answers])

    @property
    def first(self) -> Quantiles:
        """Times of first messages."""
        return Quantiles.of([answer.first_s for answer in self.answers])

    @property
    def sent(self) -> Quantiles:
        """How late the load generator was."""
        return Quantiles.of([answer.sent_s for answer in self.answers])

    @property
    def served_per_s(self) -> float:
        """Answers by the time from the beginning to the last of them."""
        return served_rate(self.answers, self.seconds)


@dataclass(frozen=True, slots=True)
class Series:
    """All measurements of one way to call one server."""

    name: str
    unloaded: list[Run] = field(default_factory=list)
    """One request at a time."""
    full: list[Run] = field(default_factory=list)
    """As many in flight as keep all cores busy."""
    points: dict[float, list[Run]] = field(default_factory=dict)
    """By the share of the base's capacity."""

    @property
    def capacity(self) -> float:
        """Requests per second that the server answers when all its cores are busy."""
        return statistics.median(steady_rate(run.answers, run.seconds) for run in self.full)

    @property
    def unloaded_s(self) -> float:
        """Median time of a complete answer with one request at a time."""
        return _median(self.unloaded, lambda run: run.total.p50)

    def figures(self, capacity_per_s: float, slo_s: float) -> dict[str, Any]:
        """Computes medians over the rounds, in milliseconds and per second.

        Counts are sums, and the load generator's share of a core is the largest.

        Args:
            capacity_per_s: What shares of a rate are shares of.
            slo_s: Within which an answer is in time.

        Returns:
            Values for JSON; None stands for a time that is infinite, since too many requests
            failed.
        """
        answers = [answer for run in self.full for answer in run.answers]
        rates = [(share * capacity_per_s, runs) for share, runs in self.points.items()]

        def highest(latency_s: Callable[[Run], float]) -> dict[str, Any]:
            points = [(rate, _median(runs, latency_s)) for rate, runs in rates]
            return asdict(highest_rate(points, slo_s))

        return {
            "name": self.name,
            "unloaded_ms": 1e3 * self.unloaded_s,
            "unloaded_first_ms": _ms(_median(self.unloaded, lambda run: run.first.p50)),
            "capacity_per_s": self.capacity,
            "tokens_per_answer": sum(answer.tokens for answer in answers)
            / max(1, sum(not answer.error for answer in answers)),
            "highest_rate": highest(lambda run: run.total.p99),
            "highest_rate_first": highest(lambda run: run.first.p99),
            "points": [
                {"share": share, "rate_per_s": share * capacity_per_s, **_point(runs, slo_s)}
                for share, runs in self.points.items()
            ],
        }


def _point(runs: Sequence[Run], slo_s: float) -> dict[str, Any]:
    answers = [answer for run in runs for answer in run.answers]
    seconds = sum(run.seconds for run in runs)
    within = share_within(answers, slo_s)
    return {
        "requests": len(answers),
        "total_ms": _quantiles(runs, lambda run: run.total),
        "total_p99_ms_rounds": [_ms(run.total.p99) for run in runs],
        "first_ms": _quantiles(runs, lambda run: run.first),
        "served_per_s": _median(runs, lambda run: run.served_per_s),
        "within_slo": within,
        "goodput_per_s": within * len(answers) / seconds,
        "errors": dict(Counter(answer.error for answer in answers if answer.error)),
        "generator_late_ms": _quantiles(runs, lambda run: run.sent),
        "generator_cpu_share": max(run.generator_cpu_share for run in runs),
    }


def _median(runs: Sequence[Run], figure: Callable[[Run], float]) -> float:
    return statistics.median(map(figure, runs))


def _quantiles(runs: Sequence[Run], time: Callable[[Run], Quantiles]) -> dict[str, float | None]:
    times = [time(run) for run in runs]
    return {
        name: _ms(statistics.median(getattr(one, name) for one in times))
        for name in ("p50", "p90", "p99")
    }


def _ms(seconds: float) -> float | None:
    """Makes milliseconds; JSON has no infinity."""
    return None if math.isinf(seconds) else 1e3 * seconds
