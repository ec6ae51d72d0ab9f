"""The scheduler owns each request exactly once, loses none and stays within its bounds."""

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
from tests.examples import examples
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import queued

from seqserve_server.contract.errors import Bound, Draining, QueueFull
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority
from seqserve_server.engine.packing import CrossKV, EncodedSource
from seqserve_server.engine.queue.fair_queue import MAX_NORMAL_IN_A_ROW
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.request import Request, RequestState

WORKERS, SLOTS, MAX_QUEUE, MAX_TOKENS = 3, 4, 8, 40
CLIENTS = ["a", "b", "c"]

ENCODED = EncodedSource(CrossKV([], [], []), 0)

workers = st.integers(0, WORKERS - 1)


def key(request: Request) -> tuple[str, Priority]:
    """Requests with the same key queue one behind the other."""
    return request.spec.client_id, request.spec.priority


class SchedulerMachine(RuleBasedStateMachine):
    """Drives a scheduler beside a model of it that is made of plain lists."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waiting: list[Request] = []
        self.rows: list[list[Request]] = [[] for _ in range(WORKERS)]
        self.cancelled: set[Request] = set()
        self.done: list[Request] = []
        self.stopped = False
        self.ids = itertools.count()
        # Requests that were taken while each request waited.
        self.before: dict[Request, list[Request]] = {}
        # Requests whose clients had nothing else in the engine when they came.
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
            # Makes the pace known.
            self.submit(1, None, CLIENTS[0], Priority.NORMAL, SLOTS)
            self.take(0, 30)
            self.now_s += 1
            self.finish(0, SLOTS)

    @rule(
        target=requests,
        length=st.integers(1, 9),
        patience_s=st.none() | st.integers(1, 5),
        client=st.sampled_from(CLIENTS),
        priority=st.sampled_from([Priority.NORMAL, Priority.NORMAL, Priority.LOW]),
        rows=st.sampled_from([1, 1, 1, 2, 4]),
    )
    def submit(
        self, length: int, patience_s: int | None, client: str, priority: Priority, rows: int
    ) -> Request:
        deadline_s = None if patience_s is None else self.now_s + patience_s
        request = queued(length, caller=client, rows=rows, deadline_s=deadline_s, priority=priority)
        request.request_id = next(self.ids)
        tokens = sum(len(one.spec.source) for one in self.waiting)
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
        others = [*self.waiting, *self.running]
        if all(key(one) != key(request) for one in others):
            self.first.add(request)
        self.waiting.append(request)
        self.before[request] = []
        return request

    def assert_just(self, request: Request, bound: Bound, tokens: int) -> None:
        own = [one for one in self.waiting if key(one) == key(request)]
        if bound is Bound.LENGTH:
            assert len(self.waiting) == MAX_QUEUE
        elif bound is Bound.TOKENS:
            assert tokens + len(request.spec.source) > MAX_TOKENS
        elif bound is Bound.CALLER:
            assert own, "it has nothing in the queue"
            own_tokens = sum(len(one.spec.source) for one in own)
            room = len(own) > MAX_QUEUE - len(self.waiting)
            assert room or own_tokens > max(MAX_TOKENS - tokens, 1)
        elif bound is Bound.DEADLINE:
            assert request.spec.deadline_s is not None
        else:
            assert request.spec.priority is Priority.NORMAL

    @rule(worker=workers, budget=st.integers(1, 30))
    def take(self, worker: int, budget: int) -> None:
        rows = self.rows[worker]
        busy = self.slots(rows)
        everything = self.slots(self.waiting) + sum(map(self.slots, self.rows))
        share = math.ceil(everything / WORKERS)
        taken = self.scheduler.take(busy=busy, free=SLOTS - busy, budget_tokens=budget)
        assert not (self.stopped and taken)
        assert self.slots(taken) <= SLOTS - busy
        assert not taken or busy + self.slots(taken[:-1]) < share, "more than its share"
        new = [one for one in taken if one.encoded is None]
        assert len(taken) < 2 or sum(len(one.spec.source) for one in new) <= budget
        for request in taken:
            request.encoded = None
            self.assert_fair(request)
            self.waiting.remove(request)
            for one in self.waiting:
                self.before[one].append(request)
        rows += taken

    @rule(budget=st.integers(1, 30), fails=st.booleans())
    def encode_ahead(self, budget: int, fails: bool) -> None:
        """Encodes the sources of waiting requests; they wait on as before."""
        ahead = self.scheduler.take_ahead(budget)
        assert set(ahead) <= set(self.waiting)
        assert all(request.encoded is None for request in ahead), "it was encoded before"
        assert sum(len(request.spec.source) for request in ahead) <= budget
        assert not set(self.scheduler.take_ahead(budget)) & set(ahead), "two workers encode it"
        for request in ahead:
            request.encoded = None if fails else ENCODED
        self.scheduler.note_encoded(self.waiting)

    @property
    def running(self) -> list[Request]:
        return [one for rows in self.rows for one in rows]

    @staticmethod
    def slots(requests: list[Request]) -> int:
        return sum(request.options.rows for request in requests)

    def assert_fair(self, request: Request) -> None:
        before = self.before.pop(request)
        index = self.waiting.index(request)
        older = [one for one in self.waiting[:index] if key(one) == key(request)]
        assert all(one.options.rows > request.options.rows for one in older), (
            "it passed an older one of its client that is no larger"
        )
        younger = [
            one
            for one in before
            if key(one) == key(request) and one.request_id > request.request_id
        ]
        assert self.slots(younger) < request.options.rows + SLOTS, "it was passed again and again"
        if request in self.first and request.options.rows == 1:
            self.assert_prompt(request, before)

    def assert_prompt(self, request: Request, before: list[Request]) -> None:
        """Checks that a client's only request waits for few of each other client."""
        for client in CLIENTS:
            same = [one for one in before if key(one) == (client, request.spec.priority)]
            # The next one, and larger ones that had been passed.
            single = [one for one in same if one.options.rows == 1]
            assert len(single) <= 1 + len(CLIENTS), "it waited for a flood"
        normal = [one for one in before if one.spec.priority is Priority.NORMAL]
        low = [one for one in before if one.spec.priority is Priority.LOW]
        if request.spec.priority is Priority.LOW:
            assert len(normal) <= (MAX_NORMAL_IN_A_ROW + 1) * (len(low) + 2), "it starves"
        else:
            assert len(low) <= 1 + len(normal), "low priority was served first"

    @precondition(lambda self: self.waiting and not self.stopped)
    @rule()
    def take_everywhere(self) -> None:
        """Lets every worker take once: a free slot gets a request that fits."""
        before = list(self.waiting)
        has_room = any(self.slots(rows) < SLOTS for rows in self.rows)
        smallest = min((one.options.rows for one in before), default=0)
        has_room &= smallest == 1 and all(one.passed_rows == 0 for one in before)
        for worker in range(WORKERS):
            self.take(worker, 1)
        assert not has_room or len(self.waiting) < len(before), "all are stuck"

    @rule(request=requests)
    def cancel(self, request: Request) -> None:
        waited = self.scheduler.cancel(request)
        assert waited == (request in self.waiting)
        if waited:
            self.waiting.remove(request)
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
            if request.spec.deadline_s is not None and request.spec.deadline_s <= self.now_s
        ]
        assert set(self.scheduler.expire(self.now_s)) == set(late)
        self.waiting = [request for request in self.waiting if request not in late]
        self.done += late

    @rule(worker=workers, count=st.integers(1, SLOTS))
    def finish(self, worker: int, count: int) -> None:
        self.leave(worker, self.rows[worker][:count])

    def leave(self, worker: int, gone: list[Request], *, answered: bool = True) -> None:
        self.scheduler.finish(gone, answered=answered)
        self.rows[worker] = [request for request in self.rows[worker] if request not in gone]
        self.cancelled -= set(gone)
        self.done += gone

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
            one.spec.priority is Priority.LOW for one in self.waiting
        )
        assert self.scheduler.running == sum(map(self.slots, self.rows)) <= WORKERS * SLOTS
        assert self.scheduler.stopped == self.stopped

    @invariant()
    def each_request_is_in_one_place(self) -> None:
        everywhere = [*self.waiting, *self.running, *self.done]
        assert len(everywhere) == len(set(everywhere))
        for state, group in (
            (RequestState.WAITING, self.waiting),
            (RequestState.DONE, self.done),
            *((RequestState.RUNNING, rows) for rows in self.rows),
        ):
            assert all(request.state is state for request in group)

    @invariant()
    def nothing_is_kept_of_requests_that_have_left(self) -> None:
        if not (self.waiting or self.running):
            assert_idle(self.scheduler)

    def teardown(self) -> None:
        """Ends what is left, so that every run checks for leaks."""
        self.scheduler.stop()
        for rows in self.rows:
            self.scheduler.finish(rows)
        assert_idle(self.scheduler)


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(examples(100), stateful_step_count=40)
