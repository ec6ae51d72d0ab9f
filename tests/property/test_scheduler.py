"""Whatever happens in whatever order: a request has one owner, none is lost, all is bounded."""

from __future__ import annotations

import itertools
import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from seqserve_server.contract.errors import Bound, Draining, QueueFull
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority, Request, RequestState
from seqserve_server.engine.queue.fair_queue import NORMAL_TURNS
from seqserve_server.engine.queue.scheduler import Scheduler

WORKERS, SLOTS, MAX_QUEUE, MAX_TOKENS = 3, 4, 8, 40
CALLERS = ["a", "b", "c"]

workers = st.integers(0, WORKERS - 1)


class SchedulerMachine(RuleBasedStateMachine):
    """Drives a scheduler beside a model of it that is made of plain lists."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waiting: list[Request] = []
        self.rows: list[list[Request]] = [[] for _ in range(WORKERS)]
        # Answers that wait for their attention.
        self.decoded: list[Request] = []
        self.cancelled: set[Request] = set()
        self.done: list[Request] = []
        self.stopped = False
        self.numbers = itertools.count()
        # Requests that were taken while each waited.
        self.before: dict[Request, list[Request]] = {}
        # Whose callers had nothing else in the engine when they came.
        self.first: set[Request] = set()

    @initialize(max_queue_s=st.sampled_from([1.0, None]))
    def begin(self, max_queue_s: float | None) -> None:
        limits = QueueLimits(
            max_queue=MAX_QUEUE,
            max_queue_tokens=MAX_TOKENS,
            max_queue_s=max_queue_s,
            caller_share=0.5,
        )
        self.scheduler = Scheduler(limits, WORKERS, WORKERS * SLOTS, lambda: self.now_s)
        for _ in range(4):
            # So the pace gets known.
            self.submit(1, None, CALLERS[0], Priority.NORMAL, SLOTS, False)
            self.take(0, 30)
            self.now_s += 1
            self.finish(0, SLOTS)

    @rule(
        target=requests,
        length=st.integers(1, 9),
        patience_s=st.none() | st.integers(1, 5),
        caller=st.sampled_from(CALLERS),
        priority=st.sampled_from([Priority.NORMAL, Priority.NORMAL, Priority.LOW]),
        rows=st.sampled_from([1, 1, 1, 2, 4]),
        attends=st.sampled_from([False, False, True]),
    )
    def submit(
        self,
        length: int,
        patience_s: int | None,
        caller: str,
        priority: Priority,
        rows: int,
        attends: bool,
    ) -> Request:
        request = Request(
            source=[4] * length,
            options=DecodingOptions(
                max_decoding_length=5, beam_size=rows, return_attention=attends
            ),
            receive=lambda event: None,
            deadline_s=None if patience_s is None else self.now_s + patience_s,
            caller=caller,
            priority=priority,
            number=next(self.numbers),
        )
        tokens = sum(len(one.source) for one in self.waiting)
        try:
            self.scheduler.submit(request)
        except Draining:
            assert self.stopped
            return request
        except QueueFull as full:
            assert not self.stopped
            assert full.retry_after_s >= 0.0 and full.spacing_s >= 0.0
            assert self.waiting, "nothing was before it"
            self.assert_just(request, full.bound, tokens)
            return request
        assert not self.stopped
        assert len(self.waiting) < MAX_QUEUE
        assert not self.waiting or tokens + length <= MAX_TOKENS
        others = [*self.waiting, *self.running, *self.decoded]
        if all((one.caller, one.priority) != (caller, priority) for one in others):
            self.first.add(request)
        self.waiting.append(request)
        self.before[request] = []
        return request

    def assert_just(self, request: Request, bound: Bound, tokens: int) -> None:
        """Checks that a refusal is for the reason given."""
        holder = (request.caller, request.priority)
        own = [one for one in self.waiting if (one.caller, one.priority) == holder]
        if bound is Bound.LENGTH:
            assert len(self.waiting) == MAX_QUEUE
        elif bound is Bound.TOKENS:
            assert tokens + len(request.source) > MAX_TOKENS
        elif bound is Bound.CALLER:
            assert own, "it has nothing in the queue"
            own_tokens = sum(len(one.source) for one in own)
            room = len(own) > MAX_QUEUE - len(self.waiting)
            assert room or own_tokens > max(MAX_TOKENS - tokens, 1)
        elif bound is Bound.DEADLINE:
            assert request.deadline_s is not None
        else:
            assert request.priority is Priority.NORMAL

    @rule(worker=workers, budget=st.integers(1, 30))
    def take(self, worker: int, budget: int) -> None:
        rows = self.rows[worker]
        held = self.slots(rows)
        everything = self.slots(self.waiting) + sum(map(self.slots, self.rows))
        share = math.ceil(everything / WORKERS)
        taken = self.scheduler.take(held=held, free=SLOTS - held, budget_tokens=budget)
        assert not (self.stopped and taken)
        assert self.slots(taken) <= SLOTS - held
        assert not taken or held + self.slots(taken[:-1]) < share, "more than its share"
        assert len(taken) < 2 or sum(len(one.source) for one in taken) <= budget
        for request in taken:
            self.assert_fair(request)
            self.waiting.remove(request)
            for one in self.waiting:
                self.before[one].append(request)
        rows += taken

    @property
    def running(self) -> list[Request]:
        return [one for rows in self.rows for one in rows]

    @staticmethod
    def slots(requests: list[Request]) -> int:
        return sum(request.options.rows for request in requests)

    def assert_fair(self, request: Request) -> None:
        before = self.before.pop(request)
        alike = [one for one in self.waiting if one.priority is request.priority]
        older = [one for one in alike[: alike.index(request)] if one.caller == request.caller]
        if request.options.needs_attention:
            # Where there is no room for answers to wait, others pass freely.
            before = [one for one in before if one.options.needs_attention]
        else:
            older = [one for one in older if not one.options.needs_attention]
        assert all(one.options.rows > request.options.rows for one in older), (
            "it passed one of its caller that is no larger"
        )
        holder = request.caller, request.priority
        younger = [
            one
            for one in before
            if (one.caller, one.priority) == holder and one.number > request.number
        ]
        assert self.slots(younger) < request.options.rows + SLOTS, "it was passed again and again"
        if request in self.first and request.options.rows == 1:
            self.assert_prompt(request, before)

    def assert_prompt(self, request: Request, before: list[Request]) -> None:
        """Checks that a caller's only request waits for few of each other caller."""
        for caller in CALLERS:
            same = [
                one for one in before if (one.caller, one.priority) == (caller, request.priority)
            ]
            # One whose turn it is, and larger ones that had been passed.
            single = [one for one in same if one.options.rows == 1]
            assert len(single) <= 1 + len(CALLERS), "it waited for a flood"
        normal = [one for one in before if one.priority is Priority.NORMAL]
        low = [one for one in before if one.priority is Priority.LOW]
        if request.priority is Priority.LOW:
            assert len(normal) <= (NORMAL_TURNS + 1) * (len(low) + 2), "it starves"
        else:
            assert len(low) <= 1 + len(normal), "those of low priority went first"

    @precondition(lambda self: self.waiting and not self.stopped)
    @rule()
    def take_everywhere(self) -> None:
        """Lets all workers look once: where a slot is free, somebody takes one that fits."""
        before = list(self.waiting)
        has_room = any(self.slots(rows) < SLOTS for rows in self.rows)
        room = WORKERS * SLOTS - self.attended
        fitting = [one for one in before if room or not one.options.needs_attention]
        smallest = min((one.options.rows for one in fitting), default=0)
        has_room &= smallest == 1 and all(one.passed_rows == 0 for one in before)
        for worker in range(WORKERS):
            self.take(worker, 1)
        assert not has_room or len(self.waiting) < len(before), "all are stuck"

    @rule(request=requests)
    def cancel(self, request: Request) -> None:
        waited = self.scheduler.cancel(request)
        assert waited == (request in self.waiting or request in self.decoded)
        if waited:
            (self.waiting if request in self.waiting else self.decoded).remove(request)
            self.done.append(request)
        elif any(request in rows for rows in self.rows):
            self.cancelled.add(request)

    @rule(worker=workers)
    def drop_cancelled(self, worker: int) -> None:
        rows = self.rows[worker]
        gone = self.scheduler.take_cancelled(rows)
        assert set(gone) == self.cancelled & set(rows)
        self.cancelled -= set(gone)
        self.leave(worker, gone, answered=False)

    @rule(seconds=st.integers(0, 3))
    def expire(self, seconds: int) -> None:
        self.now_s += seconds
        late = [
            request
            for request in self.waiting
            if request.deadline_s is not None and request.deadline_s <= self.now_s
        ]
        assert set(self.scheduler.expire(self.now_s)) == set(late)
        self.waiting = [request for request in self.waiting if request not in late]
        self.done += late

    @rule(callers=st.permutations(CALLERS), rows=st.sampled_from([1, 4]))
    def flood(self, callers: list[str], rows: int) -> None:
        """Lets more come than has room, for longer than a burst takes."""
        for number in range(MAX_QUEUE + 4):
            self.submit(1, None, callers[number % len(callers)], Priority.NORMAL, rows, False)
            self.now_s += 0.2
        self.shed()

    @rule()
    def shed(self) -> None:
        before = self.scheduler.queue_depth
        shed = [request for request, _ in self.scheduler.shed(self.now_s)]
        assert all(request.priority is Priority.NORMAL for request in shed)
        assert not before or len(shed) < before, "the next one never goes"
        self.waiting = [request for request in self.waiting if request not in shed]
        self.done += shed

    @rule(worker=workers, count=st.integers(1, SLOTS))
    def finish(self, worker: int, count: int) -> None:
        self.leave(worker, self.rows[worker][:count])

    def leave(self, worker: int, gone: list[Request], *, answered: bool = True) -> None:
        self.scheduler.finish(gone, answered=answered)
        self.rows[worker] = [request for request in self.rows[worker] if request not in gone]
        self.cancelled -= set(gone)
        for request in gone:
            waits = answered and request.options.needs_attention
            (self.decoded if waits else self.done).append(request)

    @rule(request=requests, answered=st.booleans())
    def settle(self, request: Request, answered: bool) -> None:
        waited = request in self.decoded
        assert self.scheduler.settle(request, answered=answered) == waited
        if waited:
            self.decoded.remove(request)
            self.done.append(request)

    @precondition(lambda self: self.decoded)
    @rule()
    def settle_next(self) -> None:
        self.settle(self.decoded[0], answered=True)

    @property
    def attended(self) -> int:
        """Rows whose answers wait for their attention, or will."""
        running = [one for one in self.running if one.options.needs_attention]
        return self.slots(running) + self.slots(self.decoded)

    @rule(request=consumes(requests))
    def forget(self, request: Request) -> None:
        """Keeps cancellations from falling mostly on requests that ended long ago."""

    @precondition(lambda self: len(self.done) > 3)
    @rule()
    def stop(self) -> None:
        assert set(self.scheduler.stop()) == set(self.waiting)
        self.done += self.waiting
        self.waiting = []
        self.stopped = True

    @invariant()
    def counts_agree(self) -> None:
        assert self.scheduler.queue_depth == len(self.waiting) <= MAX_QUEUE
        assert self.scheduler.low_queue_depth == sum(
            one.priority is Priority.LOW for one in self.waiting
        )
        assert self.scheduler.running == sum(map(self.slots, self.rows)) <= WORKERS * SLOTS
        assert self.scheduler._attended_rows == self.attended <= WORKERS * SLOTS
        for priority in Priority:
            decoded = [one for one in self.decoded if one.priority is priority]
            assert self.scheduler.decoded(priority) == len(decoded)
        assert set(self.scheduler._running) == {*self.running, *self.decoded}
        assert self.scheduler.stopped == self.stopped
        assert self.scheduler._cancelled == self.cancelled, "it keeps requests that have left"

    @invariant()
    def each_request_is_in_one_place(self) -> None:
        everywhere = [*self.waiting, *self.running, *self.decoded, *self.done]
        assert len(everywhere) == len(set(everywhere))
        for state, group in (
            (RequestState.WAITING, self.waiting),
            (RequestState.DECODED, self.decoded),
            (RequestState.DONE, self.done),
            *((RequestState.RUNNING, rows) for rows in self.rows),
        ):
            assert all(request.state is state for request in group)

    @invariant()
    def nothing_is_kept_of_who_has_left(self) -> None:
        here = [*self.waiting, *self.running, *self.decoded]
        queue = self.scheduler._queue
        for priority in Priority:
            line = queue._line(priority)
            callers = {one.caller for one in here if one.priority is priority}
            assert set(line._ends) == set(line._held) == callers


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
