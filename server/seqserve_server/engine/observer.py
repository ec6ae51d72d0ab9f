"""The hooks through which the engine reports what it does; called from any thread."""

import time
from collections.abc import Sequence
from threading import Lock

from seqserve_server.contract.errors import DeadlinePassed, Stage
from seqserve_server.contract.events import Event, Failed, Finished, StopReason
from seqserve_server.contract.stats import EngineStats
from seqserve_server.engine.request import Request


class Observer:
    """Ignores every report, of which none is per row and step; subclasses raise nothing."""

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        """Sources of these lengths, in tokens, were encoded together."""

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """A worker ran one step, encoding included; ``outside_s`` of it outside ONNX Runtime."""

    def drafted(self, drafted: int, accepted: int) -> None:
        """A part of a draft was read, of as many tokens; greedy search writes ``accepted``."""

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Requests have their first token."""

    def ended(self, request: Request, event: Event) -> None:
        """A request has finished or failed."""

    def cancelled(self, request: Request) -> None:
        """A request was cancelled and has left."""


class StatsRecorder(Observer):
    """Keeps the statistics of one engine."""

    def __init__(self) -> None:
        self._stats = EngineStats()
        histograms = self._stats.histograms
        self._durations = histograms["step_duration_seconds"]
        self._waits = histograms["inter_token_duration_seconds"]
        self._rows = histograms["batch_rows"]
        self._lock = Lock()

    def snapshot(self) -> EngineStats:
        """Copies the statistics."""
        with self._lock:
            return EngineStats() + self._stats

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        """Counts sources that were encoded together."""
        with self._lock:
            self._observe("encode_duration_seconds", duration_s)
            for length in lengths:
                self._observe("source_tokens", length)
            self._stats.totals["source_tokens"] += sum(lengths)

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """Counts a step; its duration counts once for each row that waited for it."""
        with self._lock:
            self._durations.observe(duration_s)
            self._waits.observe(duration_s, rows)
            self._rows.observe(rows)
            self._stats.totals["step_seconds"] += duration_s
            self._stats.totals["step_outside_runtime_seconds"] += outside_s

    def drafted(self, drafted: int, accepted: int) -> None:
        """Counts the tokens of a part of a draft."""
        with self._lock:
            self._stats.totals["drafted_tokens"] += drafted
            self._stats.totals["accepted_draft_tokens"] += accepted

    def first_tokens(self, requests: Sequence[Request]) -> None:
        """Measures the wait for a slot and for the first token."""
        with self._lock:
            for request in requests:
                timeline = request.timeline
                waited_s = timeline.encode_began_s - timeline.arrived_s
                self._observe("queue_duration_seconds", waited_s)
                first_s = timeline.first_token_s - timeline.arrived_s
                self._observe("time_to_first_token_seconds", first_s)

    def ended(self, request: Request, event: Event) -> None:
        """Counts how a request ended."""
        with self._lock:
            if isinstance(event, Finished):
                self._finished(request, event)
            elif isinstance(event, Failed) and isinstance(event.error, DeadlinePassed):
                self._late(request, event.error.where)

    def cancelled(self, request: Request) -> None:
        """Counts a request that was cancelled; as late where its deadline has passed."""
        deadline_s = request.spec.deadline_s
        with self._lock:
            if request.is_late or (deadline_s is not None and deadline_s <= time.monotonic()):
                has_begun = request.timeline.encode_began_s > 0.0 or request.answer is not None
                self._late(request, Stage.DECODE if has_begun else Stage.QUEUE)
            else:
                self._stats.totals["cancelled"] += 1
                self._stats.totals["generated_tokens"] += request.tokens_done

    def _observe(self, name: str, value: float) -> None:
        self._stats.histograms[name].observe(value)

    def _late(self, request: Request, stage: Stage) -> None:
        self._stats.totals["generated_tokens"] += request.tokens_done
        if stage is Stage.QUEUE:
            self._never_began(request)
        self._stats.deadlines[stage.value] += 1

    def _never_began(self, request: Request) -> None:
        waited_s = time.monotonic() - request.timeline.arrived_s
        self._observe("queue_duration_seconds", waited_s)

    def _finished(self, request: Request, event: Finished) -> None:
        timeline = request.timeline
        if request.answer is None and timeline.encode_began_s:
            ran_s = timeline.finished_s - timeline.encode_began_s
            self._observe("compute_duration_seconds", ran_s)
        if request.generate.lacks_attention(timeline):
            # The second request counts: coverage may yet choose other hypotheses.
            return
        is_cut = event.best.stop_reason is StopReason.TIME_LIMIT
        if is_cut and not timeline.encode_began_s:
            self._never_began(request)
        for hypothesis in event.hypotheses:
            tokens = len(hypothesis.token_ids)
            self._observe("generated_tokens", tokens)
            self._stats.totals["generated_tokens"] += tokens
            self._stats.stops[hypothesis.stop_reason.value] += 1
