"""Whatever happens in whatever order: a request has one owner, none is lost, all is bounded."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from seqserve_server.engine.request import DecodingOptions, Request, RequestState
from seqserve_server.engine.scheduler import Scheduler
from seqserve_server.errors import Draining, QueueFull

WORKERS, SLOTS, MAX_QUEUE = 3, 4, 6

workers = st.integers(0, WORKERS - 1)


class SchedulerMachine(RuleBasedStateMachine):
    """Drives a scheduler beside a model of it that is made of plain lists."""

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(workers=WORKERS, max_queue=MAX_QUEUE)
        self.now_s = 0.0
        self.waiting: list[Request] = []
        self.rows: list[list[Request]] = [[] for _ in range(WORKERS)]
        self.cancelled: set[Request] = set()
        self.done: list[Request] = []
        self.stopped = False

    @rule(
        target=requests,
        length=st.integers(1, 9),
        patience_s=st.none() | st.integers(0, 5),
    )
    def submit(self, length: int, patience_s: int | None) -> Request:
        request = Request(
            source=[4] * length,
            options=DecodingOptions(max_decoding_length=5),
            receive=lambda event: None,
            deadline_s=None if patience_s is None else self.now_s + patience_s,
        )
        if self.stopped:
            with pytest.raises(Draining):
                self.scheduler.submit(request)
        elif len(self.waiting) == MAX_QUEUE:
            with pytest.raises(QueueFull):
                self.scheduler.submit(request)
        else:
            self.scheduler.submit(request)
            self.waiting.append(request)
        return request

    @rule(worker=workers, budget=st.integers(1, 30))
    def take(self, worker: int, budget: int) -> None:
        rows = self.rows[worker]
        free, held = SLOTS - len(rows), len(rows)
        share = math.ceil((len(self.waiting) + sum(map(len, self.rows))) / WORKERS)
        taken = self.scheduler.take(held=held, free=free, budget_tokens=budget)
        assert taken == self.waiting[: len(taken)], "not first come, first served"
        assert not (self.stopped and taken)
        assert len(taken) <= free
        assert not taken or held + len(taken) <= share, "more than its share"
        lengths = [len(request.source) for request in self.waiting[: len(taken) + 1]]
        assert len(taken) < 2 or sum(lengths[: len(taken)]) <= budget
        if len(taken) < len(self.waiting) and not self.stopped:
            reasons = (
                len(taken) == free,
                held + len(taken) >= share,
                bool(taken) and sum(lengths) > budget,
            )
            assert any(reasons), "it left a request waiting for no reason"
        del self.waiting[: len(taken)]
        rows += taken

    @precondition(lambda self: self.waiting and not self.stopped)
    @rule()
    def take_everywhere(self) -> None:
        """Lets all workers look once: where a slot is free, somebody takes the oldest."""
        before = list(self.waiting)
        has_room = any(len(rows) < SLOTS for rows in self.rows)
        for worker in range(WORKERS):
            self.take(worker, 1)
        assert not has_room or len(self.waiting) < len(before), "the oldest is stuck"

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
        self.leave(worker, gone)

    @rule(seconds=st.integers(0, 3))
    def expire(self, seconds: int) -> None:
        self.now_s += seconds
        late = [
            request
            for request in self.waiting
            if request.deadline_s is not None and request.deadline_s <= self.now_s
        ]
        assert self.scheduler.expire(self.now_s) == late
        self.waiting = [request for request in self.waiting if request not in late]
        self.done += late

    @rule(worker=workers, count=st.integers(1, SLOTS))
    def finish(self, worker: int, count: int) -> None:
        self.leave(worker, self.rows[worker][:count])

    def leave(self, worker: int, gone: list[Request]) -> None:
        self.scheduler.finish(gone)
        self.rows[worker] = [request for request in self.rows[worker] if request not in gone]
        self.cancelled -= set(gone)
        self.done += gone

    @rule(request=consumes(requests))
    def forget(self, request: Request) -> None:
        """Keeps cancellations from falling mostly on requests that ended long ago."""

    @precondition(lambda self: len(self.done) > 3)
    @rule()
    def stop(self) -> None:
        assert self.scheduler.stop() == self.waiting
        self.done += self.waiting
        self.waiting = []
        self.stopped = True

    @invariant()
    def counts_agree(self) -> None:
        assert self.scheduler.queue_depth == len(self.waiting) <= MAX_QUEUE
        assert self.scheduler.running == sum(map(len, self.rows)) <= WORKERS * SLOTS
        assert self.scheduler.stopped == self.stopped
        assert self.scheduler._cancelled == self.cancelled, "it keeps requests that have left"

    @invariant()
    def each_request_is_in_one_place(self) -> None:
        everywhere = [*self.waiting, *(one for rows in self.rows for one in rows), *self.done]
        assert len(everywhere) == len(set(everywhere))
        for state, group in (
            (RequestState.WAITING, self.waiting),
            (RequestState.DONE, self.done),
            *((RequestState.RUNNING, rows) for rows in self.rows),
        ):
            assert all(request.state is state for request in group)

    @invariant()
    def retry_is_bounded(self) -> None:
        assert 0.05 <= self.scheduler.retry_after_s() <= 30.0


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
