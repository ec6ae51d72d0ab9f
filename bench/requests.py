"""Requests to servers: what they ask, and how long their answers take.

Servers take turns at several rates; a figure is the highest rate that holds a limit.
"""

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from seqserve.load import Answer, percentile
from seqserve.load.grpc_callers import GrpcCaller
from seqserve.requests import generate_request

_FOLDER = Path(__file__).parent
MAX_DECODING_LENGTH = 64
"""Most target tokens of every request."""
PAIRS = 14_400
"""Of everyday sentences."""


def caller_of(
    address: str, *, streamed: bool = False, connections: int | None = None
) -> GrpcCaller:
    """Makes a caller of one server, for answers at once or streamed."""
    # The other engines compute no scores and divide no texts.
    request = generate_request(
        "", max_decoding_length=MAX_DECODING_LENGTH, return_scores=False, segmentation="none"
    )
    return GrpcCaller(address, request, streamed=streamed, connections=connections)


def check_answers(answers: Iterable[Answer]) -> None:
    """Raises an error if a call failed in a closed loop, which never overloads a server."""
    if errors := {answer.error for answer in answers if answer.error}:
        raise SystemExit(f"calls failed: {', '.join(sorted(errors))}")


def everyday() -> list[str]:
    """Reads 120 everyday sentences in English."""
    return _read("sentences.txt")


def mixed(count: int) -> list[str]:
    """Makes texts as long as everyday sentences: the first half of one, the second of another.

    All :data:`PAIRS` come before one comes again.
    """
    halves = [
        (words[: len(words) // 2], words[len(words) // 2 :]) for words in map(str.split, everyday())
    ]
    pairs = [" ".join(first + second) for first, _ in halves for _, second in halves]
    random.Random(1).shuffle(pairs)
    return [*islice(cycle(pairs), count)]


def news() -> list[str]:
    """Reads 192 sentences in English as newspapers have them, 25 to 30 words each."""
    return _read("news.txt")


def _read(name: str) -> list[str]:
    return (_FOLDER / name).read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True, slots=True)
class HighestRate:
    """The highest rate at which a limit holds."""

    per_s: float
    """0 where not even the lowest rate measured holds it."""
    is_bound: bool
    """Whether it is the last rate known to hold it, because no measured rate breaks it."""


def highest_rate(points: Sequence[tuple[float, float]], limit_s: float) -> HighestRate:
    """Finds where a latency crosses its limit for the first time, linear between the points.

    Points are a rate a second, ascending, and its latency in seconds, which may be infinite.
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

    def percentile(self, time: str, share: float) -> float:
        """Returns a percentile of ``total_s``, ``first_s`` or ``sent_s`` of its answers.

        A failed request took for ever.
        """
        return percentile([getattr(answer, time) for answer in self.answers], share)


def steady_rate(answers: Sequence[Answer], seconds: float) -> float:
    """Returns the answers per second of a closed loop, its first third and its end left out.

    At first no answer can be there yet, and at the end too few requests are left to keep a server
    busy.
    """
    begin_s = seconds / 3
    ended = [answer.due_s + answer.total_s for answer in answers]
    return sum(begin_s <= at_s < seconds for at_s in ended) / (seconds - begin_s)


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
        return _median(self.unloaded, "total_s", 0.5)

    def figures(self, capacity_per_s: float, slo_s: float) -> dict[str, Any]:
        """Computes medians over the rounds, in milliseconds and per second.

        Counts are sums, and the load generator's share of a core is the largest.

        Returns:
            Values for JSON; None for a time that is infinite, since too many requests failed.
        """
        rates = [(share * capacity_per_s, runs) for share, runs in self.points.items()]

        def highest(time: str) -> dict[str, Any]:
            points = [(rate, _median(runs, time, 0.99)) for rate, runs in rates]
            return asdict(highest_rate(points, slo_s))

        return {
            "name": self.name,
            "unloaded_ms": 1e3 * self.unloaded_s,
            "capacity_per_s": self.capacity,
            "highest_rate": highest("total_s"),
            "highest_rate_first": highest("first_s"),
            "points": [
                {"share": share, "rate_per_s": share * capacity_per_s, **_point(runs)}
                for share, runs in self.points.items()
            ],
        }


def _point(runs: Sequence[Run]) -> dict[str, Any]:
    answers = [answer for run in runs for answer in run.answers]
    return {
        "requests": len(answers),
        "total_ms": _quantiles_ms(runs, "total_s"),
        "first_ms": _quantiles_ms(runs, "first_s"),
        "errors": dict(Counter(answer.error for answer in answers if answer.error)),
        "generator_late_ms": _quantiles_ms(runs, "sent_s"),
        "generator_cpu_share": max(run.generator_cpu_share for run in runs),
    }


def _median(runs: Sequence[Run], time: str, share: float) -> float:
    return statistics.median(run.percentile(time, share) for run in runs)


def _quantiles_ms(runs: Sequence[Run], time: str) -> dict[str, float | None]:
    medians = {f"p{percent}": _median(runs, time, percent / 100) for percent in (50, 99)}
    return {name: None if math.isinf(s) else 1e3 * s for name, s in medians.items()}
