"""The measurements of one peer over all rounds, and their medians."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.latency import (
    Answer,
    Quantiles,
    Summary,
    highest_rate,
    share_within,
    steady_rate,
    summary,
)
from bench.load import Caller


@dataclass(frozen=True, slots=True)
class Run:
    """One turn of a peer."""

    answers: list[Answer]
    seconds: float
    """How long requests were sent."""
    generator_cpu_share: float
    """CPU seconds of the load generator a second."""

    @property
    def summary(self) -> Summary:
        """Its figures."""
        return summary(self.answers, self.seconds)


@dataclass(frozen=True, slots=True)
class Series:
    """Everything measured of one way to call one server."""

    name: str
    caller: Caller
    unloaded: list[Run] = field(default_factory=list)
    """One request at a time."""
    full: list[Run] = field(default_factory=list)
    """As many in flight as keep all cores busy."""
    points: dict[float, list[Run]] = field(default_factory=dict)
    """By the share of the base's capacity."""


def capacity(series: Series) -> float:
    """Gives the requests per second that a server answers when all its cores are busy."""
    return statistics.median(steady_rate(run.answers, run.seconds) for run in series.full)


def unloaded_s(series: Series) -> float:
    """Gives the median time of a whole answer with one request at a time."""
    return statistics.median(run.summary.total.p50 for run in series.unloaded)


def figures(series: Series, capacity_per_s: float, slo_s: float) -> dict[str, Any]:
    """Gives medians over the rounds, in milliseconds and per second; counts are sums, and the load
    generator's share of a core is the largest.

    Args:
        series: What was measured.
        capacity_per_s: What shares of a rate are shares of.
        slo_s: Within which an answer is in time.

    Returns:
        Values for JSON; None stands for a time that is infinite, since too many requests failed.
    """
    points = [
        {"share": share, "rate_per_s": share * capacity_per_s, **_point(runs, slo_s)}
        for share, runs in series.points.items()
    ]
    full_tokens = [sum(answer.tokens for answer in run.answers) for run in series.full]
    served = [sum(not answer.error for answer in run.answers) for run in series.full]
    return {
        "name": series.name,
        "unloaded_ms": 1e3 * unloaded_s(series),
        "unloaded_first_ms": _ms(_median(series.unloaded, lambda run: run.first.p50)),
        "capacity_per_s": capacity(series),
        "tokens_per_answer": sum(full_tokens) / max(1, sum(served)),
        "highest_rate": _highest(series, capacity_per_s, slo_s, lambda run: run.total.p99),
        "highest_rate_first": _highest(series, capacity_per_s, slo_s, lambda run: run.first.p99),
        "points": points,
    }


def _point(runs: Sequence[Run], slo_s: float) -> dict[str, Any]:
    answers = [answer for run in runs for answer in run.answers]
    seconds = sum(run.seconds for run in runs)
    within = share_within(answers, slo_s)
    return {
        "requests": len(answers),
        "total_ms": _quantiles(runs, lambda run: run.total),
        "total_p99_ms_rounds": [_ms(run.summary.total.p99) for run in runs],
        "first_ms": _quantiles(runs, lambda run: run.first),
        "served_per_s": _median(runs, lambda run: run.served_per_s),
        "within_slo": within,
        "goodput_per_s": within * len(answers) / seconds,
        "errors": dict(Counter(answer.error for answer in answers if answer.error)),
        "generator_late_ms": _quantiles(runs, lambda run: run.sent),
        "generator_cpu_share": max(run.generator_cpu_share for run in runs),
    }


def _highest(
    series: Series, capacity_per_s: float, slo_s: float, latency: Callable[[Summary], float]
) -> dict[str, Any]:
    points = [
        (share * capacity_per_s, _median(runs, latency)) for share, runs in series.points.items()
    ]
    return asdict(highest_rate(points, slo_s))


def _median(runs: Sequence[Run], figure: Callable[[Summary], float]) -> float:
    return statistics.median(figure(run.summary) for run in runs)


def _quantiles(
    runs: Sequence[Run], figure: Callable[[Summary], Quantiles]
) -> dict[str, float | None]:
    return {
        "p50": _ms(_median(runs, lambda run: figure(run).p50)),
        "p90": _ms(_median(runs, lambda run: figure(run).p90)),
        "p99": _ms(_median(runs, lambda run: figure(run).p99)),
    }


def _ms(seconds: float) -> float | None:
    """Makes milliseconds; JSON has no infinity."""
    return None if math.isinf(seconds) else 1e3 * seconds
