"""Statistics of an engine since it started: counters and histograms that can be added and sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from seqserve_server.contract.errors import Stage
from seqserve_server.contract.events import StopReason
from seqserve_server.contract.histogram import Histogram, geometric, powers_of_two

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

    def add(self, other: EngineStats) -> None:
        """Adds the statistics of another engine."""
        for name, histogram in other.histograms.items():
            self.histograms[name].add(histogram)
        _add(self.totals, other.totals)
        _add(self.deadlines, other.deadlines)
        _add(self.stops, other.stops)


Number = TypeVar("Number", int, float)


def _add(to: dict[str, Number], other: dict[str, Number]) -> None:
    for name, value in other.items():
        to[name] += value
