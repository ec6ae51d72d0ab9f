"""What an engine can hold, its state, and its statistics since it started: counters and histograms
that can be added and sent; and those of the cache of its answers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import add
from typing import NamedTuple

from seqserve_server.contract.errors import Stage
from seqserve_server.contract.events import StopReason


def geometric(low: float, high: float, factor: float = 1.5) -> list[float]:
    """Lists bounds from ``low`` to at least ``high``, each ``factor`` times the previous one."""
    count = math.ceil(math.log(high / low, factor) - 1e-9) + 1
    return [float(f"{low * factor**i:.3g}") for i in range(count)]


def powers_of_two(high: int) -> list[float]:
    """Lists the bounds 1, 2, 4, .. up to ``high``."""
    return [float(2**i) for i in range(high.bit_length())]


class Histogram:
    """Counts of values by bucket, and their sum; one thread at a time may write, any may read."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Takes the rising upper bounds of the buckets."""
        self._bounds = list(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> int:
        """Adds a value ``count`` times; returns the index of its bucket."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += count
        self._sum += value * count
        return bucket

    def __add__(self, other: Histogram) -> Histogram:
        total = Histogram(self._bounds)
        total._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        total._sum = self._sum + other._sum
        return total

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the cumulative counts by upper bound, as Prometheus wants them, and the sum."""
        counts, total = list(self._counts), self._sum
        running, rows = 0, []
        for bound, count in zip([*self._bounds, math.inf], counts, strict=True):
            running += count
            # OpenMetrics wants a whole number to be written as 1.0.
            rows.append(("+Inf" if math.isinf(bound) else str(bound), float(running)))
        return rows, total


REQUEST_BOUNDS = geometric(0.0005, 60.0)
"""Upper bounds of the buckets for times that a caller waits, in seconds."""
_STEP_BOUNDS = geometric(0.0001, 1.0)
_COUNT_BOUNDS = powers_of_two(4096)

HISTOGRAMS = {
    "queue_duration_seconds": ("Time a request waited for a slot.", REQUEST_BOUNDS),
    "encode_duration_seconds": ("Time to encode the sources that joined together.", _STEP_BOUNDS),
    "compute_duration_seconds": ("Time a request ran, to its last token.", REQUEST_BOUNDS),
    "time_to_first_token_seconds": ("From arrival to the first token.", REQUEST_BOUNDS),
    "inter_token_duration_seconds": ("Between two tokens of one request.", _STEP_BOUNDS),
    "step_duration_seconds": ("One step of a worker, joins included.", _STEP_BOUNDS),
    "batch_rows": ("Rows that shared a step.", _COUNT_BOUNDS),
    "source_tokens": ("Tokens of a source.", _COUNT_BOUNDS),
    "generated_tokens": ("Tokens of an answer.", _COUNT_BOUNDS),
}
"""Help text and upper bounds of each histogram."""
COUNTERS = {
    "source_tokens": "Source tokens encoded.",
    "generated_tokens": "Target tokens, also those done before a deadline passed or a cancel.",
    "drafted_tokens": "Tokens of drafts that were verified.",
    "accepted_draft_tokens": "Verified tokens of drafts that were right.",
    "cancelled": "Requests that were cancelled.",
    "step_seconds": "Time in steps.",
    "step_outside_runtime_seconds": "Time in steps, but outside ONNX Runtime.",
}
"""Help text of each counter."""


@dataclass(slots=True)
class EngineStats:
    """Statistics of one engine or of several; every series exists from the start, at zero."""

    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {
            name: Histogram(bounds) for name, (_, bounds) in HISTOGRAMS.items()
        }
    )
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0.0))
    deadlines: dict[str, int] = field(default_factory=lambda: {stage.value: 0 for stage in Stage})
    stops: dict[str, int] = field(
        default_factory=lambda: {reason.value: 0 for reason in StopReason}
    )

    def __add__(self, other: EngineStats) -> EngineStats:
        pairs = [(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)]
        return EngineStats(*({name: a[name] + b[name] for name in a} for a, b in pairs))


class Ready(NamedTuple):
    """The engine accepts requests; what it, or several of them together, can hold."""

    slots: int
    max_rows: int
    """Maximum number of slots of one request."""
    cache_bytes: int
    """Bytes of all keys and values."""

    @classmethod
    def total(cls, engines: Sequence[Ready]) -> Ready:
        """Adds up the engines of one version."""
        return cls(
            slots=sum(engine.slots for engine in engines),
            max_rows=min(engine.max_rows for engine in engines),
            cache_bytes=sum(engine.cache_bytes for engine in engines),
        )


class StatsReply(NamedTuple):
    """The state of an engine and its statistics since it started."""

    queue_depth: int
    """Requests that wait for a slot or for the scorer."""
    slots_in_use: int
    stats: EngineStats
    low_queue_depth: int = 0
    """Waiting requests of low priority."""
    heartbeats: tuple[int, ...] = ()
    """Iterations of each thread."""
    gpu_used_bytes: int = 0
    """Memory of its GPU in use by any process."""
    gpu_total_bytes: int = 0
    """Memory of its GPU; 0 where it has none."""
    gpu_unrecorded_steps: int = 0
    """Sizes of steps that its GPU could not record; they take longer."""

    @classmethod
    def total(cls, replies: Sequence[StatsReply]) -> StatsReply:
        """Adds up the replies of several engines."""
        return cls(*(reduce(add, values) for values in zip(*replies, strict=True)))


LOOKUPS = ("hit", "joined", "miss")


@dataclass(slots=True)
class CacheCounts:
    """Counts of one version."""

    lookups: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOOKUPS, 0))
    """Requests by how they found their answer: it was cached, an equal one in flight had it, or the
    engine computed it."""
    evictions: int = 0
    """Answers that made room for newer ones."""
    held_bytes: int = 0
    """Memory of its answers now."""
