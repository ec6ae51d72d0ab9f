"""Targets that are known and wait for the scorer: bounded, fair, and without any array.

Answers that are to show what they attended to come first, in turn: callers wait for them already,
and the scheduler bounds how many there are. Targets that came with a request wait within the bounds
of those who wait for a slot, callers in turn; one turn in sixteen is theirs whatever else there is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from seqserve_server.contract.errors import Draining
from seqserve_server.contract.events import Event, Finished, TargetScored
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority, Request, RequestState
from seqserve_server.engine.queue.admission import Admission
from seqserve_server.engine.queue.fair_queue import NORMAL_TURNS, FairQueue
from seqserve_server.engine.queue.pace import Pace

MAX_SCORE_BATCH = 16
"""Targets that are scored together."""

Entry = tuple[Request, Finished | None]
"""A request with a target, or one with its answer, whose attention is wanted."""


class ScoreQueue:
    """The queue in front of the scorer. Every method may be called from any thread."""

    def __init__(self, limits: QueueLimits, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins empty.

        Args:
            limits: What may wait of targets; answers are not among them.
            clock: That of deadlines, in seconds.
        """
        self._clock = clock
        self._queue = FairQueue()
        self._pace = Pace(MAX_SCORE_BATCH)
        self._admission = Admission(self._queue, self._pace, limits)
        self._answers: dict[Request, Finished] = {}
        # Answers that went before targets that wait.
        self._turns = 0
        self._is_busy = False
        # Targets that were handed out, and since when they, or else the next ones, could be run.
        self._running = 0
        self._ready_s = 0.0
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def queue_depth(self) -> int:
        """Targets that wait; answers are not among them."""
        return len(self._queue)

    @property
    def low_queue_depth(self) -> int:
        """Those of them that have low priority."""
        return self._queue.waiting(Priority.LOW)

    def submit(self, request: Request) -> None:
        """Lets a request with a target wait.

        Raises:
            QueueFull: There is no room to wait, or none that would do it any good.
            Draining: No new requests are taken any more.
        """
        with self._changed:
            if self._stopped:
                raise Draining("the server is shutting down; call another one")
            now_s = self._clock()
            free = 0 if self._is_busy or self._answers else MAX_SCORE_BATCH
            self._admission.check(request, now_s, free)
            if not self._queue and not self._running:
                self._ready_s = now_s
            request.state = RequestState.WAITING
            self._queue.add(request)
            self._changed.notify()

    def annotate(self, request: Request, answer: Finished) -> None:
        """Lets an answer wait for its attention, unless nobody waits for it any more."""
        with self._changed:
            if request.state is RequestState.DECODED:
                self._answers[request] = answer
                self._changed.notify()

    def cancel(self, request: Request) -> bool:
        """Forgets a request that waits; False where it does not."""
        with self._changed:
            if request.target is None:
                return self._answers.pop(request, None) is not None
            if request.state is not RequestState.WAITING:
                return False
            self._leave(request)
            return True

    def _leave(self, request: Request) -> None:
        self._queue.leave(request)
        request.state = RequestState.DONE

    def take(self, timeout_s: float) -> list[Entry]:
        """Waits for what is next, and hands out what can be run together with it.

        Args:
            timeout_s: How long; then, and once it was stopped, nothing is handed out.
        """
        with self._changed:
            self._is_busy = False
            self._changed.wait_for(lambda: self._stopped or self._answers or self._queue, timeout_s)
            self._is_busy = bool(self._answers or self._queue)
            if self._answers and not (self._queue and self._turns >= NORMAL_TURNS):
                self._turns = self._turns + 1 if self._queue else 0
                request = next(iter(self._answers))
                return [(request, self._answers.pop(request))]
            self._turns = 0
            return [(request, None) for request in self._together()]

    def _together(self) -> list[Request]:
        """Takes who is next, and more where nothing but scores is wanted of any."""
        taken: list[Request] = []
        while self._queue and len(taken) < MAX_SCORE_BATCH:
            request = next(iter(self._queue))
            if taken and (request.wants_attention or taken[0].wants_attention):
                break
            self._queue.serve(request)
            request.state = RequestState.RUNNING
            taken.append(request)
        self._running = len(taken)
        return taken

    def finish(self, events: Sequence[tuple[Request, Event]]) -> None:
        """Notes how what was handed out has ended."""
        with self._changed:
            for request, _ in events:
                if request.target is not None:
                    request.state = RequestState.DONE
                    self._queue.forget(request)
                    self._running -= 1
            scored = [request for request, event in events if isinstance(event, TargetScored)]
            if not scored:
                return
            # Answers that came between are part of what they had to wait for.
            now_s = self._clock()
            held_s, self._ready_s = now_s - self._ready_s, now_s
            for request in scored:
                # Few hold the scorer as much as many do.
                self._pace.ended(request.work, MAX_SCORE_BATCH / len(scored), held_s)

    def stop(self) -> list[Request]:
        """Hands out nothing more; gives the requests that still waited."""
        with self._changed:
            self._stopped = True
            left = [*self._answers, *self._queue]
            self._answers.clear()
            for request in list(self._queue):
                self._leave(request)
            self._changed.notify_all()
        return left

    @property
    def stopped(self) -> bool:
        """Whether the scorer should end."""
        return self._stopped
