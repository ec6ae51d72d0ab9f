"""Decides which requests may wait, and when refused ones should try again.

How many requests a client may have in the queue depends on the room that is left, so that other
clients find some: Choudhury and Hahne 1998, "Dynamic Queue Length Thresholds". With a share of 1/2
one client gets half of the queue, two get a third each, three a quarter each; the same part stays
free for newcomers.
"""

from __future__ import annotations

import math
from collections import Counter

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority
from seqserve_server.engine.queue.congestion import Congestion
from seqserve_server.engine.queue.fair_queue import FairQueue
from seqserve_server.engine.queue.pace import Pace
from seqserve_server.engine.request import Request

# A request is refused for its deadline only if the estimate exceeds the time left by this factor.
_MARGIN = 1.5

_UNKNOWN_RETRY_S = 0.5


class Admission:
    """Admits requests to one queue. Times are those of the scheduler's clock, in seconds."""

    def __init__(self, queue: FairQueue, pace: Pace, limits: QueueLimits) -> None:
        """Takes the bounds."""
        self._queue = queue
        self._pace = pace
        self._limits = limits
        self._congestion = Congestion()
        # A client may have this many times the free room: alpha of the paper. A client that is
        # alone ends with alpha / (1 + alpha) of the queue, which is caller_share.
        share = limits.caller_share
        self._alpha = share / (1.0 - share) if share < 1.0 else math.inf

    def check(self, request: Request, now_s: float, free: int) -> None:
        """Accepts a request that may wait.

        Raises:
            QueueFull: It may not wait.
        """
        found = self._objection(request, now_s, free)
        if found:
            bound, reason = found
            if bound is not Bound.DEADLINE:
                self._congestion.note(now_s)
            raise self._refusal(request, reason, bound)

    def _objection(self, request: Request, now_s: float, free: int) -> tuple[Bound, str] | None:
        queue = self._queue
        count, tokens = len(queue), len(request.spec.source)
        if count >= self._limits.max_queue:
            return Bound.LENGTH, f"{count} requests are waiting already"
        if not count:
            # Nothing is before it, however large it is.
            return None
        if queue.tokens + tokens > self._limits.max_queue_tokens:
            return Bound.TOKENS, f"{queue.tokens} source tokens are waiting already"
        if self._exceeds_share(request):
            return Bound.CALLER, "others must find room to wait; this caller has its share of it"
        if queue.rows + request.spec.rows <= free:
            # Workers will take all of it when they next look.
            return None
        return self._too_long_wait(request, now_s)

    def _exceeds_share(self, request: Request) -> bool:
        count, tokens = self._queue.waiting(request.spec.client_id, request.spec.priority)
        room = self._limits.max_queue - len(self._queue)
        room_tokens = self._limits.max_queue_tokens - self._queue.tokens
        # The first waiting request of a client is always allowed; infinity times 0 is not a number.
        return bool(count) and (
            count > self._alpha * room or tokens > self._alpha * max(room_tokens, 1)
        )

    def _too_long_wait(self, request: Request, now_s: float) -> tuple[Bound, str] | None:
        """Objects to a request that would wait longer than makes sense."""
        if not self._pace.is_known:
            return None
        wait_s = self._wait_s(request)
        count, _ = self._queue.waiting(request.spec.client_id, request.spec.priority)
        if wait_s > self._max_wait_s(request, now_s, count):
            return Bound.WAIT, f"it would wait for about {wait_s:.3g} s"
        left_s = request.spec.begin_by_s - now_s
        if wait_s > _MARGIN * left_s:
            return Bound.DEADLINE, f"it would wait for about {wait_s:.3g} s, beyond its deadline"
        return None

    def _max_wait_s(self, request: Request, now_s: float, count: int) -> float:
        """Computes how long a request may wait if ``count`` others of its client wait already."""
        if request.spec.priority is Priority.LOW:
            # It waits behind all others, and delays none of them.
            return math.inf
        max_s = self._limits.max_queue_s
        if max_s is None:
            max_s = self._congestion.max_wait_s(now_s, self._pace.service_s, self._pace.interval_s)
        # A client with waiting requests leaves the rest of the time to newcomers.
        return max_s * self._limits.caller_share if count else max_s

    def has_surplus(self, now_s: float) -> bool:
        """Tells whether some waiting requests may have to leave."""
        is_adaptive = self._limits.max_queue_s is None
        return is_adaptive and self._pace.is_known and self._congestion.has_surplus(now_s)

    def surplus(self, now_s: float) -> list[Request]:
        """Finds the waiting requests that would be refused if they came now; they have to leave."""
        found: list[Request] = []
        staying, work = Counter[str](), 0
        for request in self._queue:
            client_id = request.spec.client_id
            max_s = self._max_wait_s(request, now_s, staying[client_id])
            if self._pace.duration_s(work) > max_s:
                found.append(request)
            elif request.spec.priority is Priority.NORMAL:
                staying[client_id] += 1
                work += request.spec.work
        self._congestion.clear()
        return found

    def surplus_refusal(self, request: Request) -> QueueFull:
        """Makes the refusal of a request that had to leave."""
        return self._refusal(request, "more has come for a while than can be done", Bound.WAIT)

    def _refusal(self, request: Request, reason: str, bound: Bound) -> QueueFull:
        if not self._pace.is_known:
            return QueueFull(reason, _UNKNOWN_RETRY_S, bound)
        # The engine is shared with the other clients that wait.
        spacing_s = self._pace.duration_s(request.spec.work) * max(self._queue.clients, 1)
        return QueueFull(reason, self._wait_s(request), bound, spacing_s)

    def _wait_s(self, request: Request) -> float:
        spec = request.spec
        return self._pace.duration_s(self._queue.work_before(spec.client_id, spec.priority))
