"""Holds the requests that wait for the scorer: bounded and fair.

Requests for the attention of a finished answer come first and are never refused: their callers hold
the answer already. So the backlog is bounded before: while many answers wait, no request that will
need attention may start. Requests to score a target wait within the bounds of a queue, fair among
clients. One pass in sixteen is theirs in any case.
"""

import time
from collections.abc import Callable, Sequence

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.events import Event, TargetScored
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority, ScoreSpec
from seqserve_server.engine.queue.fair_queue import MAX_NORMAL_IN_A_ROW
from seqserve_server.engine.queue.request_queue import RequestQueue
from seqserve_server.engine.request import Request, RequestState

MAX_SCORE_BATCH = 16
"""Targets that are scored together."""

_RETRY_S = 0.5


class ScoreQueue(RequestQueue):
    """The queue in front of the scorer."""

    def __init__(self, limits: QueueLimits, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(limits, MAX_SCORE_BATCH, clock)
        # Answers that wait for their attention; the fair queue holds the targets.
        self._answers: dict[Request, None] = {}
        # Answers served since a target was, while targets wait.
        self._answers_in_a_row = 0
        self._is_busy = False
        # Targets that run, and since when they, or else the next ones, could have run.
        self._running = 0
        self._ready_s = 0.0

    @property
    def queue_depth(self) -> int:
        """Waiting requests."""
        return super().queue_depth + len(self._answers)

    @property
    def low_queue_depth(self) -> int:
        """Waiting requests of low priority."""
        with self.changed:
            low = sum(request.spec.priority is Priority.LOW for request in self._answers)
            return super().low_queue_depth + low

    def _add(self, request: Request) -> None:
        if request.answer is not None:
            self._answers[request] = None
            return
        now_s = self._clock()
        free = 0 if self._is_busy or self._answers else MAX_SCORE_BATCH
        self._admission.check(request, now_s, free)
        if not self._queue and not self._running:
            self._ready_s = now_s
        self._queue.add(request)

    def check_backlog(self, max_answers: int) -> None:
        """Raises QueueFull if ``max_answers`` answers wait for their attention."""
        if len(self._answers) >= max_answers:
            reason = (
                f"{len(self._answers)} answers wait for their attention already, which"
                " return_attention, return_alignment, replace_unknowns and coverage_penalty need;"
                " requests without them are taken"
            )
            raise QueueFull(reason, _RETRY_S, Bound.ATTENTION)

    def _leave(self, request: Request) -> None:
        if request.answer is None:
            super()._leave(request)
        else:
            del self._answers[request]
            request.state = RequestState.DONE

    def _waiting(self) -> list[Request]:
        return [*self._answers, *self._queue]

    def take(self, timeout_s: float) -> list[Request]:
        """Waits for requests that run together next; returns none after a timeout."""
        with self.changed:
            self._is_busy = False
            self.changed.wait_for(lambda: self.stopped or self.queue_depth, timeout_s)
            self._is_busy = self.queue_depth > 0
            return self._take_answer() or self._take_targets()

    def _take_answer(self) -> list[Request]:
        """Takes the next answer, unless it is the turn of a target."""
        if not self._answers or (self._queue and self._answers_in_a_row >= MAX_NORMAL_IN_A_ROW):
            return []
        self._answers_in_a_row = self._answers_in_a_row + 1 if self._queue else 0
        answer = next(iter(self._answers))
        del self._answers[answer]
        answer.state = RequestState.RUNNING
        return [answer]

    def _take_targets(self) -> list[Request]:
        self._answers_in_a_row = 0
        taken: list[Request] = []
        while self._queue and len(taken) < MAX_SCORE_BATCH:
            request = next(iter(self._queue))
            if taken and (_wants_attention(request) or _wants_attention(taken[0])):
                break
            self._queue.serve(request)
            request.state = RequestState.RUNNING
            taken.append(request)
        self._running = len(taken)
        return taken

    def finish(self, events: Sequence[tuple[Request, Event]]) -> None:
        """Notes how the requests of the last pass ended."""
        with self.changed:
            for request, _ in events:
                request.state = RequestState.DONE
                if request.answer is None:
                    self._queue.forget(request)
                    self._running -= 1
            scored = [request for request, event in events if isinstance(event, TargetScored)]
            if not scored:
                return
            # Answers served in between are part of what these had to wait for.
            now_s = self._clock()
            duration_s, self._ready_s = now_s - self._ready_s, now_s
            for request in scored:
                # A small batch occupies the scorer as much as a full one.
                self._pace.ended(request.work, MAX_SCORE_BATCH / len(scored), duration_s)


def _wants_attention(request: Request) -> bool:
    return isinstance(request.spec, ScoreSpec) and request.spec.wants_attention
