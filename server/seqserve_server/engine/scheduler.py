"""Who waits and who is next: first come, first served, bounded, and without any array.

Requests wait in one queue. Workers take from it between their steps, each no more than its share,
so that rows spread evenly over workers whatever the order in which they ask.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable

from seqserve_server.engine.request import Request, RequestState
from seqserve_server.errors import Draining, QueueFull

# Weight of the newest interval in the running mean of the time between two completions.
_SMOOTHING = 0.1
_LEAST_RETRY_S = 0.05
_MOST_RETRY_S = 30.0


class Scheduler:
    """The queue in front of the workers. Every method may be called from any thread."""

    def __init__(self, *, workers: int, max_queue: int) -> None:
        """Begins empty.

        Args:
            workers: How many take from it.
            max_queue: Most requests that wait.
        """
        self._workers = workers
        self._max_queue = max_queue
        self._waiting: deque[Request] = deque()
        self._running: set[Request] = set()
        # Rows are counted, not requests: a beam takes several.
        self._running_rows = self._waiting_rows = 0
        self._cancelled: set[Request] = set()
        self._changed = threading.Condition()
        self._stopped = False
        # No waiting request is late before; what left the queue may keep it too low for a while.
        self._next_deadline_s = math.inf
        self._last_completion_s = 0.0
        self._completion_interval_s = 0.0

    @property
    def queue_depth(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Slots that are held, over all workers."""
        return self._running_rows

    def submit(self, request: Request) -> None:
        """Lets a request wait for a slot.

        Raises:
            QueueFull: There is no room to wait.
            Draining: No new requests are taken any more.
        """
        with self._changed:
            if self._stopped:
                raise Draining("the server is shutting down; call another one")
            if len(self._waiting) >= self._max_queue:
                raise QueueFull(
                    f"{len(self._waiting)} requests are waiting already", self.retry_after_s()
                )
            request.state = RequestState.WAITING
            self._waiting.append(request)
            self._waiting_rows += request.options.rows
            if request.deadline_s is not None:
                self._next_deadline_s = min(self._next_deadline_s, request.deadline_s)
            self._changed.notify()

    def cancel(self, request: Request) -> bool:
        """Forgets a request: at once where it waits, before the next step where it runs.

        Returns:
            Whether it waited, and so has left already.
        """
        with self._changed:
            if request.state is RequestState.WAITING:
                self._waiting.remove(request)
                self._waiting_rows -= request.options.rows
                request.state = RequestState.DONE
                return True
            if request.state is RequestState.RUNNING:
                self._cancelled.add(request)
            return False

    def take(self, *, held: int, free: int, budget_tokens: int) -> list[Request]:
        """Hands a worker the next requests, which from then on run.

        The oldest is always handed out where there is a free slot, however long its source is;
        further ones only within the budget and within the worker's share of all requests.

        Args:
            held: Slots that the worker has in use.
            free: Slots that it has free.
            budget_tokens: Source tokens that it may encode now.
        """
        taken: list[Request] = []
        if not free or not self._waiting:
            return taken
        with self._changed:
            if self._stopped:
                return taken
            share = -(-(self._running_rows + self._waiting_rows) // self._workers)
            while self._waiting and held < share and self._waiting[0].options.rows <= free:
                budget_tokens -= len(self._waiting[0].source)
                if taken and budget_tokens < 0:
                    break
                request = self._begin_next()
                taken.append(request)
                held += request.options.rows
                free -= request.options.rows
            if self._waiting:
                self._changed.notify()
        return taken

    def _begin_next(self) -> Request:
        request = self._waiting.popleft()
        request.state = RequestState.RUNNING
        self._running.add(request)
        self._waiting_rows -= request.options.rows
        self._running_rows += request.options.rows
        return request

    def expire(self, now_s: float) -> list[Request]:
        """Takes out of the queue every request whose deadline has passed."""
        if now_s < self._next_deadline_s:
            return []
        late: list[Request] = []
        with self._changed:
            still: deque[Request] = deque()
            self._next_deadline_s = math.inf
            for request in self._waiting:
                deadline_s = math.inf if request.deadline_s is None else request.deadline_s
                if deadline_s <= now_s:
                    request.state = RequestState.DONE
                    late.append(request)
                else:
                    still.append(request)
                    self._next_deadline_s = min(self._next_deadline_s, deadline_s)
            self._waiting = still
            self._waiting_rows -= sum(request.options.rows for request in late)
        return late

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

    def finish(self, requests: Iterable[Request]) -> None:
        """Notes that requests have left their slots."""
        with self._changed:
            for request in requests:
                request.state = RequestState.DONE
                if request in self._running:
                    self._running.remove(request)
                    self._running_rows -= request.options.rows
                self._cancelled.discard(request)
                self._note_completion()

    def wait_for_work(self, timeout_s: float) -> bool:
        """Blocks an idle worker until something waits; False where it should look again."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._waiting) or self._stopped, timeout_s)

    def stop(self) -> list[Request]:
        """Ends the workers; gives the requests that still waited."""
        with self._changed:
            self._stopped = True
            left = list(self._waiting)
            self._waiting.clear()
            self._waiting_rows = 0
            for request in left:
                request.state = RequestState.DONE
            self._changed.notify_all()
        return left

    @property
    def stopped(self) -> bool:
        """Whether workers should end."""
        return self._stopped

    def retry_after_s(self) -> float:
        """Estimates when half of the queue will have gone, from the pace of recent completions."""
        wait_s = len(self._waiting) / 2 * self._completion_interval_s
        return min(max(wait_s, _LEAST_RETRY_S), _MOST_RETRY_S)

    def _note_completion(self) -> None:
        now_s = time.monotonic()
        if self._last_completion_s:
            newest = min(now_s - self._last_completion_s, 1.0)
            self._completion_interval_s += _SMOOTHING * (newest - self._completion_interval_s)
        self._last_completion_s = now_s
