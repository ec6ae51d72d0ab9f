"""Holds the requests that wait for the scorer: bounded and fair.

Requests for the attention of a finished answer come first and are never refused: their callers hold
the answer already, and calls in flight bound how many there are. Requests to score a target wait
within the bounds of a queue, fair among clients. One pass in sixteen is theirs in any case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from seqserve_server.contract.errors import Draining
from seqserve_server.contract.events import Event, TargetScored
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority, ScoreSpec
from seqserve_server.engine.queue.admission import Admission
from seqserve_server.engine.queue.fair_queue import MAX_NORMAL_IN_A_ROW, FairQueue
from seqserve_server.engine.queue.pace import Pace
from seqserve_server.engine.request import Request, RequestState

MAX_SCORE_BATCH = 16
"""Targets that are scored together."""


class ScoreQueue:
    """The queue in front of the scorer. Every method may be called from any thread."""

    def __init__(self, limits: QueueLimits, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts empty.

        Args:
            limits: Bounds of the targets that wait.
            clock: The clock of deadlines, in seconds.
        """
        self._clock = clock
        self._targets = FairQueue()
        self._pace = Pace(MAX_SCORE_BATCH)
        self._admission = Admission(self._targets, self._pace, limits)
        self._answers: dict[Request, None] = {}
        # Answers served since a target was, while targets wait.
        self._answers_in_a_row = 0
        self._is_busy = False
        # Targets that run, and since when they, or else the next ones, could have run.
        self._running = 0
        self._ready_s = 0.0
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def queue_depth(self) -> int:
        """Waiting requests."""
        return len(self._targets) + len(self._answers)

    @property
    def low_queue_depth(self) -> int:
        """Waiting requests of low priority."""
        low = sum(request.spec.priority is Priority.LOW for request in list(self._answers))
        return self._targets.count(Priority.LOW) + low

    @property
    def stopped(self) -> bool:
        """Whether the scorer should end."""
        return self._stopped

    def assert_idle(self) -> None:
        """Checks that nothing is kept of requests and clients that have left."""
        assert not (self._answers or self._running)
        self._targets.assert_idle()

    def submit(self, request: Request) -> None:
        """Adds a request to the queue.

        Raises:
            QueueFull: The queue is full, or the wait would be too long for the request.
            Draining: The engine takes no new requests.
        """
        with self._changed:
            if self._stopped:
                raise Draining("the server is shutting down; call another one")
            if request.answer is not None:
                self._answers[request] = None
            else:
                now_s = self._clock()
                free = 0 if self._is_busy or self._answers else MAX_SCORE_BATCH
                self._admission.check(request, now_s, free)
                if not self._targets and not self._running:
                    self._ready_s = now_s
                self._targets.add(request)
            request.state = RequestState.WAITING
            self._changed.notify()

    def cancel(self, request: Request) -> bool:
        """Removes a request that waits; False if it does not wait."""
        with self._changed:
            if request.state is not RequestState.WAITING:
                return False
            self._leave(request)
            return True

    def _leave(self, request: Request) -> None:
        if request.answer is not None:
            del self._answers[request]
        else:
            self._targets.leave(request)
        request.state = RequestState.DONE

    def take(self, timeout_s: float) -> list[Request]:
        """Waits for requests and hands out the ones that run together next.

        Args:
            timeout_s: Longest wait; after it, and after :meth:`stop`, the list is empty.
        """
        with self._changed:
            self._is_busy = False
            self._changed.wait_for(
                lambda: self._stopped or self._answers or self._targets, timeout_s
            )
            self._is_busy = bool(self._answers or self._targets)
            targets_wait = len(self._targets) > 0
            if self._answers and not (
                targets_wait and self._answers_in_a_row >= MAX_NORMAL_IN_A_ROW
            ):
                self._answers_in_a_row = self._answers_in_a_row + 1 if targets_wait else 0
                answer = next(iter(self._answers))
                del self._answers[answer]
                answer.state = RequestState.RUNNING
                return [answer]
            self._answers_in_a_row = 0
            return self._take_targets()

    def _take_targets(self) -> list[Request]:
        """Takes the next target, and more while only scores are asked for."""
        taken: list[Request] = []
        while self._targets and len(taken) < MAX_SCORE_BATCH:
            request = next(iter(self._targets))
            if taken and (_wants_attention(request) or _wants_attention(taken[0])):
                break
            self._targets.serve(request)
            request.state = RequestState.RUNNING
            taken.append(request)
        self._running = len(taken)
        return taken

    def finish(self, events: Sequence[tuple[Request, Event]]) -> None:
        """Notes how the requests of the last pass ended."""
        with self._changed:
            for request, _ in events:
                request.state = RequestState.DONE
                if request.answer is None:
                    self._targets.forget(request)
                    self._running -= 1
            scored = [request for request, event in events if isinstance(event, TargetScored)]
            if not scored:
                return
            # Answers served in between are part of what these had to wait for.
            now_s = self._clock()
            duration_s, self._ready_s = now_s - self._ready_s, now_s
            for request in scored:
                # A small batch occupies the scorer as much as a full one.
                self._pace.ended(request.spec.work, MAX_SCORE_BATCH / len(scored), duration_s)

    def stop(self) -> list[Request]:
        """Hands out nothing more; returns the requests that still waited."""
        with self._changed:
            self._stopped = True
            left = [*self._answers, *self._targets]
            for request in left:
                self._leave(request)
            self._changed.notify_all()
        return left


def _wants_attention(request: Request) -> bool:
    return isinstance(request.spec, ScoreSpec) and request.spec.wants_attention
