"""What an engine has done so far, as numbers: they can be copied, added and sent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from seqserve_server.contract.errors import DeadlinePassed, Stage
from seqserve_server.contract.events import Event, Failed, Finished, StopReason
from seqserve_server.contract.histogram import Histogram, geometric, powers_of_two
from seqserve_server.contract.request import Request

REQUEST_BOUNDS = geometric(0.0005, 60.0)
"""Upper bounds of buckets for what a caller waits for, in seconds."""
_STEP_BOUNDS = geometric(0.0001, 1.0)
_COUNT_BOUNDS = powers_of_two(4096)

HISTOGRAMS = {
    "queue_duration_seconds": ("Time a request waited for a slot.", REQUEST_BOUNDS),
    "encode_duration_seconds": ("Time to encode the sources that joined together.", _STEP_BOUNDS),
    "time_to_first_token_seconds": ("From arrival to the first token.", REQUEST_BOUNDS),
    "inter_token_duration_seconds": ("Between two tokens of one request.", _STEP_BOUNDS),
    "step_duration_seconds": ("A turn of a worker: joins and one step.", _STEP_BOUNDS),
    "batch_rows": ("Rows that shared a step.", _COUNT_BOUNDS),
    "source_tokens": ("Tokens of a source.", _COUNT_BOUNDS),
    "generated_tokens": ("Tokens of an answer.", _COUNT_BOUNDS),
}
"""What each histogram shows, and its upper bounds."""
COUNTERS = {
    "source_tokens": "Source tokens encoded.",
    "generated_tokens": "Target tokens, also those done before a deadline passed or a cancel.",
    "cancelled": "Requests whose caller went away.",
    "step_seconds": "Time in steps.",
    "step_outside_runtime_seconds": "Time in steps, but outside ONNX Runtime.",
}
"""What each counter shows."""


@dataclass(slots=True)
class EngineStats:
    """Numbers of one engine or of several; all series are there from the start, at zero."""

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
        """Adds what others have done."""
        for name, histogram in other.histograms.items():
            self.histograms[name].add(histogram)
        _add(self.totals, other.totals)
        _add(self.deadlines, other.deadlines)
        _add(self.stops, other.stops)


Number = TypeVar("Number", int, float)


def _add(to: dict[str, Number], other: dict[str, Number]) -> None:
    for name, value in other.items():
        to[name] += value


class StatsRecorder:
    """The observer that keeps the figures of an engine."""

    def __init__(self) -> None:
        """Begins at zero."""
        self._figures = EngineStats()
        self._lock = Lock()

    def figures(self) -> EngineStats:
        """Gives a copy of what there is now."""
        copy = EngineStats()
        with self._lock:
            copy.add(self._figures)
        return copy

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        """Sources of these lengths, in tokens, were encoded together."""
        with self._lock:
            self._observe("encode_duration_seconds", duration_s)
            for length in lengths:
                self._observe("source_tokens", length)
            self._figures.totals["source_tokens"] += sum(lengths)

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """A turn is over; its length counts once for each row that waited for it."""
        with self._lock:
            self._observe("step_duration_seconds", duration_s)
            self._observe("inter_token_duration_seconds", duration_s, rows)
            self._observe("batch_rows", rows)
            self._figures.totals["step_seconds"] += duration_s
            self._figures.totals["step_outside_runtime_seconds"] += outside_s

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Requests have got their first token."""
        with self._lock:
            for request in requests:
                timeline = request.timeline
                waited_s = timeline.encode_began_s - timeline.arrived_s
                self._observe("queue_duration_seconds", waited_s)
                first_s = timeline.first_token_s - timeline.arrived_s
                self._observe("time_to_first_token_seconds", first_s)

    def ended(self, request: Request, event: Event) -> None:
        """A request has finished or failed."""
        with self._lock:
            if isinstance(event, Finished):
                self._finished(request, event)
            elif isinstance(event, Failed) and isinstance(event.error, DeadlinePassed):
                self._late(request, event.error.where)

    def cancelled(self, request: Request) -> None:
        """A request was cancelled and has left; a late one counts as late."""
        with self._lock:
            if request.deadline_s is not None and request.deadline_s <= time.monotonic():
                has_begun = request.timeline.encode_began_s > 0.0
                self._late(request, Stage.DECODE if has_begun else Stage.QUEUE)
            else:
                self._figures.totals["cancelled"] += 1
                self._figures.totals["generated_tokens"] += request.tokens_done

    def _observe(self, name: str, value: float, count: int = 1) -> None:
        self._figures.histograms[name].observe(value, count)

    def _late(self, request: Request, stage: Stage) -> None:
        self._figures.totals["generated_tokens"] += request.tokens_done
        if stage is Stage.QUEUE:
            self._waited(request)
        self._figures.deadlines[stage.value] += 1

    def _waited(self, request: Request) -> None:
        """Notes one that never began; without it a queue that nobody gets through looks short."""
        waited_s = time.monotonic() - request.timeline.arrived_s
        self._observe("queue_duration_seconds", waited_s)

    def _finished(self, request: Request, event: Finished) -> None:
        is_cut = event.best.stop_reason is StopReason.TIME_LIMIT
        if is_cut and not request.timeline.encode_began_s:
            self._waited(request)
        for hypothesis in event.hypotheses:
            tokens = len(hypothesis.token_ids)
            self._observe("generated_tokens", tokens)
            self._figures.totals["generated_tokens"] += tokens
            self._figures.stops[hypothesis.stop_reason.value] += 1
