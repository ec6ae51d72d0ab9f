"""Holds the requests that wait for a slot and hands them to workers: bounded, fair, no arrays.

All workers share one queue. Between its steps a worker takes new requests, but no more than its
share of all rows, so that rows spread evenly over workers in whatever order they ask.

A beam needs several slots. If a worker has fewer free, later requests may pass the beam until they
have taken as many slots as it needs; then the worker keeps its free slots for the beam.

While no slot is free, rows leave one by one. So that sources are still encoded several at once,
which is much cheaper, a worker that encodes a source encodes the next waiting ones with it.
"""

import math
import time
from collections.abc import Callable, Iterable
from itertools import islice

from seqserve_server.contract.limits import QueueLimits
from seqserve_server.engine.queue.bulk_share import BulkShare, Part
from seqserve_server.engine.queue.request_queue import RequestQueue
from seqserve_server.engine.request import Request, RequestState

_MAX_LOOK_AHEAD = 16
"""Waiting requests among which sources to encode ahead are sought."""


class Scheduler(RequestQueue):
    """The queue in front of the workers."""

    def __init__(
        self,
        limits: QueueLimits,
        workers: int = 1,
        slots: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(limits, slots, clock)
        # When each running request started, and on which worker.
        self._started: dict[Request, tuple[float, int]] = {}
        # Rows are counted, not requests: a beam takes several.
        self._running = BulkShare(slots, workers)
        self._cancelled: set[Request] = set()
        # Source tokens of waiting requests that are encoded ahead.
        self._tokens_ahead = 0
        # No waiting request is late before this time. It stays when a request leaves, so that late
        # requests may be looked for in vain, but none is missed.
        self._next_late_s = math.inf

    @property
    def running(self) -> int:
        """Slots in use, over all workers."""
        return self._running.rows

    @property
    def has_to_encode(self) -> bool:
        """Whether requests wait, and none of them has been encoded ahead."""
        return bool(self._queue) and not self._tokens_ahead

    def _add(self, request: Request) -> None:
        self._admission.check(request, self._clock(), self._slots - self.running)
        self._queue.add(request)
        self._next_late_s = min(self._next_late_s, request.spec.begin_by_s)

    def cancel(self, request: Request) -> bool:
        """Cancels a request: at once if it waits, before the next step if it runs."""
        with self.changed:
            if request.state is RequestState.RUNNING:
                self._cancelled.add(request)
            return super().cancel(request)

    def take(self, *, busy: int, free: int, budget_tokens: int, worker: int = 0) -> list[Request]:
        """Hands the next requests to a worker; they run from then on.

        The first one is handed out whenever enough slots are free; further ones only within the
        worker's share of all rows, and within the budget of source tokens that are yet to be
        encoded.
        """
        taken: list[Request] = []
        self._running.note(worker, busy)
        if not free or not self._queue:
            return taken
        with self.changed:
            now_s, part = self._clock(), self._part(worker)
            while free and busy < part.rows:
                request, passed = self._next(free, part)
                if request is None:
                    break
                if request.encoded is None:
                    budget_tokens -= len(request.spec.source)
                if taken and budget_tokens < 0:
                    break
                self._end_ahead(request)
                rows = request.rows
                for other in passed:
                    other.passed_rows += rows
                self._queue.serve(request)
                request.state = RequestState.RUNNING
                self._started[request] = now_s, worker
                self._running.begin(request.spec, worker)
                taken.append(request)
                busy += rows
                free -= rows
                self._running.note(worker, busy)
                if not part.is_settled:
                    part = self._part(worker)
            if self._queue:
                self.changed.notify_all()
        return taken

    def take_ahead(self, budget_tokens: int, worker: int = 0) -> list[Request]:
        """Returns the waiting requests whose sources a worker should encode now.

        It is empty while slots are free for all. No other worker takes them until
        :meth:`note_encoded`. The budget is for their source tokens, and for those that wait
        encoded.
        """
        ahead: list[Request] = []
        if self._queue.rows <= self._slots - self.running:
            return ahead
        with self.changed:
            left = budget_tokens - max(0, self._tokens_ahead - budget_tokens)
            part = self._part(worker)
            for request in islice(self._queue, _MAX_LOOK_AHEAD):
                if part.is_apart and request.spec.is_bulk is part.has_singles:
                    continue
                if not request.is_encoded_ahead:
                    left -= len(request.spec.source)
                    if left < 0:
                        break
                    request.is_encoded_ahead = True
                    self._tokens_ahead += len(request.spec.source)
                    ahead.append(request)
        return ahead

    def note_encoded(self, requests: Iterable[Request]) -> None:
        """Lets workers take requests of :meth:`take_ahead`; those without a source come again."""
        with self.changed:
            for request in requests:
                if request.encoded is None:
                    self._end_ahead(request)
            self.changed.notify_all()

    def _end_ahead(self, request: Request) -> None:
        if request.is_encoded_ahead:
            request.is_encoded_ahead = False
            self._tokens_ahead -= len(request.spec.source)

    def _part(self, worker: int) -> Part:
        waiting = {is_bulk: self._queue.rows_of(is_bulk=is_bulk) for is_bulk in (False, True)}
        return self._running.part(worker, waiting, self._clock())

    def _next(self, free: float, part: Part) -> tuple[Request | None, list[Request]]:
        """Finds the next request for a worker with ``free`` slots, and those that it passes."""
        passed: list[Request] = []
        for request in self._queue:
            if request.is_encoded_ahead and request.encoded is None:
                # Another worker is encoding it.
                continue
            rows = request.rows
            if request.spec.is_bulk and rows > part.bulk_rows:
                if not self._queue.rows_of(is_bulk=False):
                    break
                continue
            if not (request.spec.is_bulk or part.has_singles):
                continue
            if rows <= free:
                return request, passed
            if request.passed_rows >= rows:
                break
            passed.append(request)
        return None, []

    def _leave(self, request: Request) -> None:
        self._end_ahead(request)
        super()._leave(request)

    def expire(self, now_s: float) -> list[Request]:
        """Removes waiting requests whose deadline or time limit has come."""
        if now_s < self._next_late_s:
            return []
        with self.changed:
            late = [request for request in self._queue if request.spec.begin_by_s <= now_s]
            for request in late:
                self._leave(request)
            self._next_late_s = min(
                (request.spec.begin_by_s for request in self._queue), default=math.inf
            )
        return late

    def take_cancelled(self, running: Iterable[Request | None]) -> list[Request]:
        """Returns the worker's requests that were cancelled since its last call."""
        if not self._cancelled:
            return []
        with self.changed:
            own = [
                request
                for request in dict.fromkeys(running)
                if request and request in self._cancelled
            ]
            self._cancelled.difference_update(own)
        return own

    def finish(self, requests: Iterable[Request], *, answered: bool = True) -> None:
        """Notes that requests have left their slots; only answered ones count for the pace."""
        with self.changed:
            for request in requests:
                self._cancelled.discard(request)
                request.state = RequestState.DONE
                started = self._started.pop(request, None)
                if started is None:
                    continue
                (started_s, worker), now_s = started, self._clock()
                self._running.end(request.spec, worker, now_s)
                self._queue.forget(request)
                if answered:
                    self._pace.ended(request.work, request.rows, now_s - started_s)

    def wait_for_work(self, timeout_s: float, worker: int = 0) -> bool:
        """Blocks an idle worker until it can take a request; False after the timeout."""
        self._running.note(worker, 0)
        with self.changed:
            return self.changed.wait_for(
                lambda: self.stopped or self._next(math.inf, self._part(worker))[0] is not None,
                timeout_s,
            )
