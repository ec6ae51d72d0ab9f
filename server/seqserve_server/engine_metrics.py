"""What Prometheus sees of the engines: the figures that each model's engines tell, and their state.

One model may have several versions, each with an engine of its own; their figures are one model's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from seqserve_server.engine.request import Event, Failed, Finished, Request, StopReason
from seqserve_server.errors import DeadlinePassed, Stage
from seqserve_server.histogram import Histogram, geometric, powers_of_two

REQUEST_BOUNDS = geometric(0.0005, 60.0)
"""Upper bounds of buckets for what a caller waits for, in seconds."""
_STEP_BOUNDS = geometric(0.0001, 1.0)
_COUNT_BOUNDS = powers_of_two(4096)

_HISTOGRAMS = {
    "queue_duration_seconds": ("Time a request waited for a slot.", REQUEST_BOUNDS),
    "encode_duration_seconds": ("Time to encode the sources that joined together.", _STEP_BOUNDS),
    "time_to_first_token_seconds": ("From arrival to the first token.", REQUEST_BOUNDS),
    "inter_token_duration_seconds": ("Between two tokens of one request.", _STEP_BOUNDS),
    "step_duration_seconds": ("A turn of a worker: joins and one step.", _STEP_BOUNDS),
    "batch_rows": ("Rows that shared a step.", _COUNT_BOUNDS),
    "source_tokens": ("Tokens of a source.", _COUNT_BOUNDS),
    "generated_tokens": ("Tokens of an answer.", _COUNT_BOUNDS),
}
_COUNTERS = {
    "source_tokens": "Source tokens encoded.",
    "generated_tokens": "Target tokens of finished answers.",
    "cancelled": "Requests whose caller went away.",
    "step_seconds": "Time in steps.",
    "step_outside_runtime_seconds": "Time in steps, but outside ONNX Runtime.",
}


class EngineState(Protocol):
    """What an engine tells when it is asked."""

    slots: int

    @property
    def queue_depth(self) -> int:
        """Requests that wait."""

    @property
    def slots_in_use(self) -> int:
        """Rows that run."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values."""


_GAUGES: dict[str, tuple[str, Callable[[EngineState], int]]] = {
    "queue_depth": ("Requests that wait for a slot.", lambda engine: engine.queue_depth),
    "slots_in_use": ("Rows that run.", lambda engine: engine.slots_in_use),
    "slots": ("Rows that may run at once.", lambda engine: engine.slots),
    "cache_bytes": ("Bytes of keys and values.", lambda engine: engine.cache_bytes),
}


class EngineFigures:
    """Figures of one model: the observer that its engines tell, and what a scrape reads."""

    def __init__(self) -> None:
        """Begins at zero, with every series in place, so that a rate sees the first event."""
        self.histograms = {name: Histogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}
        self.totals = dict.fromkeys(_COUNTERS, 0.0)
        self.deadlines = {stage.value: 0 for stage in Stage}
        self.stops = {reason.value: 0 for reason in StopReason}
        self._lock = Lock()

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        """Sources of these lengths, in tokens, were encoded together."""
        self.histograms["encode_duration_seconds"].observe(duration_s)
        for length in lengths:
            self.histograms["source_tokens"].observe(length)
        with self._lock:
            self.totals["source_tokens"] += sum(lengths)

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """A turn is over; its length counts once for each row that waited for it."""
        self.histograms["step_duration_seconds"].observe(duration_s)
        self.histograms["inter_token_duration_seconds"].observe(duration_s, rows)
        self.histograms["batch_rows"].observe(rows)
        with self._lock:
            self.totals["step_seconds"] += duration_s
            self.totals["step_outside_runtime_seconds"] += outside_s

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Requests have got their first token."""
        for request in requests:
            timeline = request.timeline
            waited_s = timeline.encode_began_s - timeline.arrived_s
            self.histograms["queue_duration_seconds"].observe(waited_s)
            first_s = timeline.first_token_s - timeline.arrived_s
            self.histograms["time_to_first_token_seconds"].observe(first_s)

    def ended(self, request: Request, event: Event) -> None:
        """A request has finished or failed."""
        if isinstance(event, Finished):
            self._finished(event)
        elif isinstance(event, Failed) and isinstance(event.error, DeadlinePassed):
            self._late(request, event.error.where)

    def cancelled(self, request: Request) -> None:
        """A request was cancelled and has left; a late one counts as late."""
        if request.deadline_s is not None and request.deadline_s <= time.monotonic():
            has_begun = request.timeline.encode_began_s > 0.0
            self._late(request, Stage.DECODE if has_begun else Stage.QUEUE)
            return
        with self._lock:
            self.totals["cancelled"] += 1

    def _late(self, request: Request, stage: Stage) -> None:
        if stage is Stage.QUEUE:
            # Left out, a queue that nobody gets through would look short.
            waited_s = time.monotonic() - request.timeline.arrived_s
            self.histograms["queue_duration_seconds"].observe(waited_s)
        with self._lock:
            self.deadlines[stage.value] += 1

    def _finished(self, event: Finished) -> None:
        tokens = len(event.token_ids)
        self.histograms["generated_tokens"].observe(tokens)
        with self._lock:
            self.totals["generated_tokens"] += tokens
            self.stops[event.stop_reason.value] += 1


class EnginesCollector(Collector):
    """Reads figures and engines at each scrape."""

    def __init__(self) -> None:
        """Begins with no model."""
        self._figures: dict[str, EngineFigures] = {}
        self._engines: dict[str, list[EngineState]] = {}

    def figures(self, model: str) -> EngineFigures:
        """Gives the figures of a model, new at the first call."""
        return self._figures.setdefault(model, EngineFigures())

    def add(self, model: str, engine: EngineState) -> None:
        """Shows the state of one more engine of a model."""
        self._engines.setdefault(model, []).append(engine)

    def describe(self) -> list[GaugeMetricFamily]:
        """Tells nothing beforehand: what there is depends on the models."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]:
        """Gives every family with the values of now."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._labelled_counters()
        for name, (text, _) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(f"seqserve_{name}", text, labels=["model"])
            for model, figures in self._figures.items():
                buckets, total = figures.histograms[name].buckets()
                family.add_metric([model], buckets, total)
            yield family

    def _gauges(self) -> Iterator[GaugeMetricFamily]:
        for name, (text, read) in _GAUGES.items():
            family = GaugeMetricFamily(f"seqserve_{name}", text, labels=["model"])
            for model, engines in self._engines.items():
                family.add_metric([model], sum(read(engine) for engine in engines))
            yield family

    def _counters(self) -> Iterator[CounterMetricFamily]:
        for name, text in _COUNTERS.items():
            family = CounterMetricFamily(f"seqserve_{name}", text, labels=["model"])
            for model, figures in self._figures.items():
                family.add_metric([model], figures.totals[name])
            yield family

    def _labelled_counters(self) -> Iterator[CounterMetricFamily]:
        late = CounterMetricFamily(
            "seqserve_deadline_exceeded",
            "Requests whose deadline passed.",
            labels=["model", "where"],
        )
        stops = CounterMetricFamily(
            "seqserve_stop", "Answers by why they stopped.", labels=["model", "reason"]
        )
        for model, figures in self._figures.items():
            for where, count in figures.deadlines.items():
                late.add_metric([model, where], count)
            for reason, count in figures.stops.items():
                stops.add_metric([model, reason], count)
        yield late
        yield stops
