"""Who may wait: the bounds of the queue, and what those are told who may not.

How long a caller may go on filling the queue depends on how much room there still is, so that
others find some: Choudhury and Hahne 1998, "Dynamic Queue Length Thresholds". With a share of 1/2
one caller gets half of the queue, two a third each, three a quarter each; as much again stays free
for newcomers.
"""

from __future__ import annotations

import math
from collections import Counter

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority, Request
from seqserve_server.engine.queue.congestion import Congestion
from seqserve_server.engine.queue.fair_queue import FairQueue
from seqserve_server.engine.queue.pace import Pace

# An estimate has to exceed the time left by so much before a request is refused for it.
_MARGIN = 1.5

_UNKNOWN_RETRY_S = 0.5


class Admission:
    """Decides over one queue. Times are those of the scheduler's clock, in seconds."""

    def __init__(self, queue: FairQueue, pace: Pace, limits: QueueLimits) -> None:
        """Takes the bounds.

        Args:
            queue: What waits.
            pace: How fast it gets done.
            limits: What may wait.
        """
        self._queue = queue
        self._pace = pace
        self._limits = limits
        self._congestion = Congestion()
        # A caller may hold so many times what is still free: alpha of the paper. One who is alone
        # ends with alpha / (1 + alpha) of the queue, which is caller_share.
        share = limits.caller_share
        self._share = share / (1.0 - share) if share < 1.0 else math.inf

    def check(self, request: Request, now_s: float, free: int) -> None:
        """Lets a request pass that may wait.

        Args:
            request: Which one.
            now_s: The time.
            free: Slots that nobody has.

        Raises:
            QueueFull: It may not.
        """
        found = self._objection(request, now_s, free)
        if found:
            bound, reason = found
            if bound is not Bound.DEADLINE:
                self._congestion.note(now_s)
            raise self._refusal(request, reason, bound)

    def _objection(self, request: Request, now_s: float, free: int) -> tuple[Bound, str] | None:
        queue = self._queue
        count, tokens = len(queue), len(request.source)
        if count >= self._limits.max_queue:
            return Bound.LENGTH, f"{count} requests are waiting already"
        if not count:
            # Whatever it is, nothing is before it.
            return None
        if queue.tokens + tokens > self._limits.max_queue_tokens:
            return Bound.TOKENS, f"{queue.tokens} source tokens are waiting already"
        if self._holds_too_much(request):
            return Bound.CALLER, "others must find room to wait; this caller has its share of it"
        if queue.rows + request.options.rows <= free:
            # Workers will take all of it when they next look.
            return None
        return self._impatience(request, now_s)

    def _holds_too_much(self, request: Request) -> bool:
        count, tokens = self._queue.held(request.caller, request.priority)
        room = self._limits.max_queue - len(self._queue)
        room_tokens = self._limits.max_queue_tokens - self._queue.tokens
        # A caller of whom nothing waits is never refused; infinite times no room is not a number.
        return bool(count) and (
            count > self._share * room or tokens > self._share * max(room_tokens, 1)
        )

    def _impatience(self, request: Request, now_s: float) -> tuple[Bound, str] | None:
        """Objects where a request would wait for longer than makes sense."""
        if not self._pace.is_known:
            return None
        wait_s = self._wait_s(request)
        count, _ = self._queue.held(request.caller, request.priority)
        if wait_s > self._longest_wait_s(request, now_s, count):
            return Bound.WAIT, f"it would wait for about {wait_s:.3g} s"
        left_s = request.begin_by_s - now_s
        if wait_s > _MARGIN * left_s:
            return Bound.DEADLINE, f"it would wait for about {wait_s:.3g} s, beyond its deadline"
        return None

    def _longest_wait_s(self, request: Request, now_s: float, count: int) -> float:
        """Gives how long a request may wait of whose caller so many others wait."""
        if request.priority is Priority.LOW:
            # It waits behind all others, and holds up nobody.
            return math.inf
        longest_s = self._limits.max_queue_s
        if longest_s is None:
            longest_s = self._congestion.longest_wait_s(
                now_s, self._pace.held_s, self._pace.interval_s
            )
        # Who waits already leaves the rest of it to newcomers.
        return longest_s * self._limits.caller_share if count else longest_s

    def has_surplus(self, now_s: float) -> bool:
        """Tells whether some may wait who would be refused by now."""
        is_left_open = self._limits.max_queue_s is None
        return is_left_open and self._pace.is_known and self._congestion.has_surplus(now_s)

    def surplus(self, now_s: float) -> list[Request]:
        """Finds those who wait, but who would be refused if they came now; they have to leave."""
        found: list[Request] = []
        staying, work = Counter[str](), 0
        for request in self._queue:
            caller = request.caller
            longest_s = self._longest_wait_s(request, now_s, staying[caller])
            if self._pace.duration_s(work) > longest_s:
                found.append(request)
            elif request.priority is Priority.NORMAL:
                staying[caller] += 1
                work += request.work
        self._congestion.clear()
        return found

    def surplus_refusal(self, request: Request) -> QueueFull:
        """Gives what is to be said to one of them that has left."""
        return self._refusal(request, "more has come for a while than can be done", Bound.WAIT)

    def _refusal(self, request: Request, reason: str, bound: Bound) -> QueueFull:
        if not self._pace.is_known:
            return QueueFull(reason, _UNKNOWN_RETRY_S, bound)
        # The engine is shared with whoever else waits.
        spacing_s = self._pace.duration_s(request.work) * max(self._queue.callers, 1)
        return QueueFull(reason, self._wait_s(request), bound, spacing_s)

    def _wait_s(self, request: Request) -> float:
        return self._pace.duration_s(self._queue.work_before(request.caller, request.priority))
