"""Requests that wait: which ones may, and when refused ones should try again.

A request may wait for as long as requests take, about, but not beyond its deadline. Under overload
a longer queue would add nothing but latency; a client that waits for each answer before it calls
again cannot overload the server, and finds room after the time that its refusal tells.

How many requests a client may have in the queue depends on the room that is left, so that other
clients find some: Choudhury and Hahne 1998, "Dynamic Queue Length Thresholds". With a share of 1/2
one client gets half of the queue, two get a third each, three a quarter each; the same part stays
free for newcomers.

The sources of bulk calls and batches have a separate room of the same size, so they never block
other requests. They wait without limit: each call has few in flight, and calls take turns.
"""

import math
import threading
import time
from collections.abc import Callable

from seqserve_server.contract.errors import Bound, Draining, QueueFull
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority
from seqserve_server.engine.queue.fair_queue import FairQueue
from seqserve_server.engine.request import Request, RequestState

MIN_MAX_WAIT_S = 0.3
"""A wait that is never refused, except for a deadline or ``max_queue_s``: people hardly mind it."""
SHARE = 0.5
"""Longest expected wait, as a share of the time that a request occupies its slots. So half as many
requests wait as run: enough that hardly a slot stays empty, too few to double the latency."""
MIN_WAITING = 2
"""Requests that may wait in any case, where few run at once; otherwise a client whose requests
always wait would keep out all others."""

# A request is refused for its deadline only if the estimate exceeds the time left by this factor.
_MARGIN = 1.5

_UNKNOWN_RETRY_S = 0.5

# Weight of the newest request in the averages.
_SMOOTHING = 0.05
# Requests that must end before an estimate is used.
_MIN_ENDED = 4


class Pace:
    """Estimates how long work takes when every slot is busy, from the requests that have ended.

    The estimate is too short until the engine has been full for as long as a request takes.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._slot_seconds = self._work = 0.0
        self._ended = 0
        self.service_s = 0.0
        """How long a request occupies its slots."""

    def ended(self, work: int, rows: float, service_s: float) -> None:
        """Adds a request that has left its slots."""
        self._ended += 1
        # A plain mean at first.
        weight = max(_SMOOTHING, 1 / self._ended)
        self._slot_seconds += weight * (rows * service_s - self._slot_seconds)
        self._work += weight * (work - self._work)
        self.service_s += weight * (service_s - self.service_s)

    @property
    def is_known(self) -> bool:
        """Whether enough requests have ended for an estimate."""
        return self._ended >= _MIN_ENDED

    @property
    def interval_s(self) -> float:
        """Time between the ends of two requests, while no slot is free."""
        return self._slot_seconds / self._slots

    def duration_s(self, work: float) -> float:
        """Estimates how long an amount of work takes; only where the pace is known."""
        return work / self._work * self.interval_s


class Admission:
    """Admits requests to one queue. Times are in seconds of the scheduler's clock."""

    def __init__(self, queue: FairQueue, pace: Pace, limits: QueueLimits) -> None:
        self._queue = queue
        self._pace = pace
        self._limits = limits
        # A client may have this many times the free room: alpha of the paper. A client that is
        # alone ends with alpha / (1 + alpha) of the queue, which is caller_share.
        share = limits.caller_share
        self._alpha = share / (1.0 - share) if share < 1.0 else math.inf

    def check(self, request: Request, now_s: float, free: int) -> None:
        """Accepts a request that may wait; raises QueueFull for others."""
        objection = self._objection(request, now_s, free)
        if objection is None:
            return
        bound, reason = objection
        if not self._pace.is_known:
            raise QueueFull(reason, _UNKNOWN_RETRY_S, bound)
        # The engine is shared with the other clients that wait.
        spacing_s = self._pace.duration_s(request.work) * max(self._queue.clients, 1)
        raise QueueFull(reason, self._wait_s(request), bound, spacing_s)

    def _objection(self, request: Request, now_s: float, free: int) -> tuple[Bound, str] | None:
        waiting, tokens = self._queue.part(request.spec), len(request.spec.source)
        if waiting.requests >= self._limits.max_queue:
            return Bound.LENGTH, f"{waiting.requests} requests are waiting already"
        # One that would be alone may wait, however large it is.
        if waiting.requests and waiting.tokens + tokens > self._limits.max_queue_tokens:
            return Bound.TOKENS, f"{waiting.tokens} source tokens are waiting already"
        if self._exceeds_share(request):
            return Bound.CALLER, "this caller already has its share of the queue"
        if not self._queue or self._queue.rows + request.rows <= free:
            # Workers take all of it before their next step.
            return None
        return self._too_long_wait(request, now_s) if self._pace.is_known else None

    def _exceeds_share(self, request: Request) -> bool:
        waiting, own = self._queue.part(request.spec), self._queue.own(request.spec)
        room = self._limits.max_queue - waiting.requests
        room_tokens = self._limits.max_queue_tokens - waiting.tokens
        # The first waiting request of a client is always allowed; infinity times 0 is not a number.
        return bool(own.requests) and (
            own.requests > self._alpha * room or own.tokens > self._alpha * max(room_tokens, 1)
        )

    def _too_long_wait(self, request: Request, now_s: float) -> tuple[Bound, str] | None:
        spec, max_wait_s = request.spec, self._max_wait_s(request)
        # When the time limit of a text comes, it ends with the sentences that are done by then.
        begin_by_s = (spec.deadline_s or math.inf) if spec.is_bulk else spec.begin_by_s
        left_s = begin_by_s - now_s
        if max_wait_s == left_s == math.inf:
            # It may wait for as long as it takes, however long that is.
            return None
        wait_s = self._wait_s(request)
        reason = f"it would wait for about {wait_s:.3g} s"
        if wait_s > _MARGIN * left_s:
            return Bound.DEADLINE, f"{reason}, beyond its deadline or time limit"
        if wait_s > max_wait_s:
            return Bound.WAIT, reason
        return None

    def _max_wait_s(self, request: Request) -> float:
        if request.spec.is_bulk or request.spec.priority is Priority.LOW:
            # It delays no other client.
            return math.inf
        if self._limits.max_queue_s is not None:
            return self._limits.max_queue_s
        pace = self._pace
        return max(MIN_MAX_WAIT_S, SHARE * pace.service_s, MIN_WAITING * pace.interval_s)

    def _wait_s(self, request: Request) -> float:
        return self._pace.duration_s(self._queue.work_before(request))


class RequestQueue:
    """Requests that wait, bounded and fair. Every method may be called from any thread."""

    def __init__(
        self, limits: QueueLimits, slots: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._slots = slots
        self._queue = FairQueue()
        self._pace = Pace(slots)
        self._admission = Admission(self._queue, self._pace, limits)
        self.changed = threading.Condition()
        """Held while the queue changes, by one thread as often as it likes."""
        self.stopped = False
        """Whether the threads that take requests should end."""

    @property
    def queue_depth(self) -> int:
        """Waiting requests."""
        return len(self._queue)

    @property
    def low_queue_depth(self) -> int:
        """Waiting requests of low priority."""
        return self._queue.count(Priority.LOW)

    def submit(self, request: Request) -> None:
        """Adds a request; raises QueueFull, or Draining once the engine stops."""
        with self.changed:
            if self.stopped:
                raise Draining
            self._add(request)
            request.state = RequestState.WAITING
            # Not every worker may take it.
            self.changed.notify_all()

    def _add(self, request: Request) -> None:
        raise NotImplementedError

    def cancel(self, request: Request) -> bool:
        """Removes a request that waits; returns whether it was waiting, and so has left."""
        with self.changed:
            if request.state is not RequestState.WAITING:
                return False
            self._leave(request)
            return True

    def _leave(self, request: Request) -> None:
        self._queue.leave(request)
        request.state = RequestState.DONE

    def _waiting(self) -> list[Request]:
        return list(self._queue)

    def stop(self) -> list[Request]:
        """Hands out nothing more; returns the requests that still waited."""
        with self.changed:
            self.stopped = True
            waiting = self._waiting()
            for request in waiting:
                self._leave(request)
            self.changed.notify_all()
        return waiting
