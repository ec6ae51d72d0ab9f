"""Who waits and who is next: bounded, fair, and without any array.

Requests wait in one queue. Workers take from it between their steps, each no more than its share,
so that rows spread evenly over workers whatever the order in which they ask.

Who is next but needs more slots than a worker has free, a beam, is not waited for at once: others
may pass it, but only until they have taken as many slots as it needs. Then slots are kept for it.

Answers that are to show what they attended to wait for that when they have left their slots. They
and those who will wait so may have as many rows as there are slots; only others pass them freely.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable

from seqserve_server.contract.errors import Draining, QueueFull
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority, Request, RequestState
from seqserve_server.engine.queue.admission import Admission
from seqserve_server.engine.queue.fair_queue import FairQueue
from seqserve_server.engine.queue.pace import Pace


class Scheduler:
    """The queue in front of the workers. Every method may be called from any thread."""

    def __init__(
        self,
        limits: QueueLimits,
        workers: int = 1,
        slots: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins empty.

        Args:
            limits: What may wait.
            workers: How many take from it.
            slots: Those of all workers, by which waiting is estimated and attention is bounded.
            clock: That of deadlines, in seconds.
        """
        self._workers = workers
        self._slots = slots
        self._clock = clock
        self._queue = FairQueue()
        self._pace = Pace(slots)
        self._admission = Admission(self._queue, self._pace, limits)
        # When each was taken, those that are decoded and wait for their attention among them.
        self._running: dict[Request, float] = {}
        self._decoded: set[Request] = set()
        # Rows are counted, not requests: a beam takes several.
        self._running_rows = self._decoded_rows = self._attended_rows = 0
        self._cancelled: set[Request] = set()
        self._changed = threading.Condition()
        self._stopped = False
        # Lower bound of when the next is late. It does not rise when a request leaves, so it may be
        # too early, never too late.
        self._next_late_s = math.inf

    @property
    def queue_depth(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    @property
    def low_queue_depth(self) -> int:
        """Those of them that have low priority."""
        return self._queue.waiting(Priority.LOW)

    @property
    def running(self) -> int:
        """Slots that are held, over all workers."""
        return self._running_rows - self._decoded_rows

    def decoded(self, priority: Priority) -> int:
        """Counts requests of a priority that have left their slots, but wait for attention."""
        with self._changed:
            return sum(request.priority is priority for request in self._decoded)

    def submit(self, request: Request) -> None:
        """Lets a request wait for a slot.

        Raises:
            QueueFull: There is no room to wait, or none that would do it any good.
            Draining: No new requests are taken any more.
        """
        with self._changed:
            if self._stopped:
                raise Draining("the server is shutting down; call another one")
            self._admission.check(request, self._clock(), self._slots - self._running_rows)
            request.state = RequestState.WAITING
            self._queue.add(request)
            self._next_late_s = min(self._next_late_s, request.begin_by_s)
            self._changed.notify()

    def cancel(self, request: Request) -> bool:
        """Forgets a request: at once where it waits, before the next step where it runs.

        Returns:
            Whether it waited, for a slot or for its attention, and so has left already.
        """
        with self._changed:
            if request.state is RequestState.WAITING:
                self._leave(request)
                return True
            if request.state is RequestState.DECODED:
                self._end(request, answered=False)
                return True
            if request.state is RequestState.RUNNING:
                self._cancelled.add(request)
            return False

    def _leave(self, request: Request) -> None:
        self._queue.leave(request)
        request.state = RequestState.DONE

    def take(self, *, held: int, free: int, budget_tokens: int) -> list[Request]:
        """Hands a worker the next requests, which from then on run.

        The next one is always handed out where enough slots are free, however long its source is;
        further ones only within the budget and within the worker's share of all requests.

        Args:
            held: Slots that the worker has in use.
            free: Slots that it has free.
            budget_tokens: Source tokens that it may encode now.
        """
        taken: list[Request] = []
        if not free or not self._queue:
            return taken
        with self._changed:
            now_s = self._clock()
            share = -(-(self.running + self._queue.rows) // self._workers)
            while free and held < share and (request := self._next(free)):
                budget_tokens -= len(request.source)
                if taken and budget_tokens < 0:
                    break
                self._begin(request, now_s)
                taken.append(request)
                held += request.options.rows
                free -= request.options.rows
            if self._queue:
                self._changed.notify()
        return taken

    def _next(self, free: float) -> Request | None:
        """Finds who is next for so many slots."""
        room = self._slots - self._attended_rows
        for request in self._queue:
            if not room and not self._queue.plain:
                return None
            options = request.options
            is_due = request.passed_rows >= options.rows
            if options.needs_attention and options.rows > room:
                # Only others like it take what it waits for.
                room = 0 if is_due else room
            elif options.rows <= free:
                return request
            elif is_due:
                return None
        return None

    def _begin(self, request: Request, now_s: float) -> None:
        rows, attends = request.options.rows, request.options.needs_attention
        for passed in self._queue:
            if passed is request:
                break
            if attends or not self._lacks_room(passed):
                passed.passed_rows += rows
        self._queue.serve(request)
        request.state = RequestState.RUNNING
        self._running[request] = now_s
        self._running_rows += rows
        self._attended_rows += rows * attends

    def _lacks_room(self, request: Request) -> bool:
        """Tells whether too many wait for their attention, or will, for one more."""
        options = request.options
        return options.needs_attention and options.rows > self._slots - self._attended_rows

    def expire(self, now_s: float) -> list[Request]:
        """Takes out of the queue every request that need not begin any more."""
        if now_s < self._next_late_s:
            return []
        with self._changed:
            late = [request for request in self._queue if request.begin_by_s <= now_s]
            for request in late:
                self._leave(request)
            self._next_late_s = min(
                (request.begin_by_s for request in self._queue), default=math.inf
            )
        return late

    def shed(self, now_s: float) -> list[tuple[Request, QueueFull]]:
        """Takes out of the queue what was let in for a burst that turned out to be none.

        Returns:
            Each with its refusal.
        """
        if not self._admission.has_surplus(now_s):
            return []
        with self._changed:
            surplus = self._admission.surplus(now_s)
            for request in surplus:
                self._leave(request)
            return [(request, self._admission.surplus_refusal(request)) for request in surplus]

    def take_cancelled(self, running: Iterable[Request | None]) -> list[Request]:
        """Gives those of a worker's requests that were cancelled since it last asked."""
        if not self._cancelled:
            return []
        with self._changed:
            mine = [
                request
                for request in dict.fromkeys(running)
                if request and request in self._cancelled
            ]
            self._cancelled.difference_update(mine)
        return mine

    def finish(self, requests: Iterable[Request], *, answered: bool = True) -> None:
        """Notes that requests have left their slots.

        An answer that is to show what it attended to goes on being counted until :meth:`settle`, so
        that no more are let in than can be shown it.

        Args:
            requests: Which.
            answered: Whether their work was done; of others nothing is learnt about the pace.
        """
        with self._changed:
            for request in requests:
                self._cancelled.discard(request)
                if answered and request.options.needs_attention and request in self._running:
                    request.state = RequestState.DECODED
                    self._decoded.add(request)
                    self._decoded_rows += request.options.rows
                else:
                    self._end(request, answered=answered)

    def settle(self, request: Request, *, answered: bool = True) -> bool:
        """Notes that it is known what an answer attended to, or never will be.

        Args:
            request: Which was decoded.
            answered: As for :meth:`finish`.

        Returns:
            Whether it still waited for that; one that was cancelled does not.
        """
        with self._changed:
            if request.state is not RequestState.DECODED:
                return False
            self._end(request, answered=answered)
            return True

    def _end(self, request: Request, *, answered: bool) -> None:
        request.state = RequestState.DONE
        began_s = self._running.pop(request, None)
        if began_s is None:
            return
        rows = request.options.rows
        self._running_rows -= rows
        if request in self._decoded:
            self._decoded.remove(request)
            self._decoded_rows -= rows
            # An idle worker may wait for that.
            self._changed.notify()
        if request.options.needs_attention:
            self._attended_rows -= rows
        self._queue.forget(request)
        if answered:
            self._pace.ended(request.work, rows, self._clock() - began_s)

    def wait_for_work(self, timeout_s: float) -> bool:
        """Blocks an idle worker until it can take something; False where it should look again."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._stopped or self._next(math.inf) is not None, timeout_s
            )

    def stop(self) -> list[Request]:
        """Ends the workers; gives the requests that still waited."""
        with self._changed:
            self._stopped = True
            left = list(self._queue)
            for request in left:
                self._leave(request)
            self._changed.notify_all()
        return left

    @property
    def stopped(self) -> bool:
        """Whether workers should end."""
        return self._stopped
