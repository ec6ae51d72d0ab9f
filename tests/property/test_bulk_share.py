"""Bulk and single calls share the slots: steps stay short for single calls, and nothing starves."""

import math

from hypothesis import example, given
from hypothesis import strategies as st
from tests.clock import Clock
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import queued

from seqserve_server.contract.limits import QueueLimits
from seqserve_server.engine.queue.bulk_share import PATIENCE_S, SHARE
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.request import Request

WORKERS, SLOTS = 2, 16
PER_WORKER = SLOTS // WORKERS


class Slots:
    """The workers of a scheduler, whose requests end when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.scheduler = Scheduler(QueueLimits(max_queue=999), WORKERS, SLOTS, self.clock)
        self.rows: list[list[Request]] = [[] for _ in range(WORKERS)]
        self.waiting_singles = 0

    def submit(self, rows: int, *, is_bulk: bool) -> None:
        self.scheduler.submit(queued(2, rows=rows, is_bulk=is_bulk, flow="bulk" * is_bulk))
        self.waiting_singles += rows * (not is_bulk)

    def take(self, worker: int) -> list[Request]:
        busy = count(self.rows[worker])
        taken = self.scheduler.take(
            busy=busy, free=PER_WORKER - busy, budget_tokens=999, worker=worker
        )
        self.rows[worker] += taken
        self.waiting_singles -= count([one for one in taken if not one.spec.is_bulk])
        return taken

    def finish(self, worker: int) -> None:
        gone = self.rows[worker][:2]
        del self.rows[worker][:2]
        self.scheduler.finish(gone)

    def bulk_rows(self) -> int:
        return count([one for rows in self.rows for one in rows if one.spec.is_bulk])

    def running_singles(self) -> int:
        return count([one for rows in self.rows for one in rows if not one.spec.is_bulk])


def count(requests: list[Request]) -> int:
    return sum(request.spec.rows for request in requests)


OPERATIONS = st.one_of(
    st.tuples(st.just("bulk"), st.integers(1, PER_WORKER)),
    st.tuples(st.just("single"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["take", "finish"]), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("wait"), st.integers(1, 3)),
)


@given(st.lists(OPERATIONS, max_size=80))
@example([("bulk", 1)] * 6 + [("single", 1), ("take", 1), ("bulk", 1), ("take", 1)])
def test_bulk_keeps_to_its_part_and_everything_is_served(
    operations: list[tuple[str, int]],
) -> None:
    slots = Slots()
    for name, number in operations:
        if name in ("bulk", "single"):
            slots.submit(number, is_bulk=name == "bulk")
        elif name == "finish":
            slots.finish(number)
        elif name == "wait":
            slots.clock.now_s += number * PATIENCE_S / 3
        else:
            bulk_before, singles = slots.bulk_rows(), slots.running_singles()
            taken = slots.take(number)
            rows = slots.rows[number]
            has_single = any(not one.spec.is_bulk for one in rows)
            if has_single and singles and bulk_before and any(one.spec.is_bulk for one in taken):
                # No more rows than if bulk kept to its part of all slots.
                most = math.ceil(
                    (slots.running_singles() + slots.waiting_singles + SLOTS * SHARE) / WORKERS
                )
                assert count(rows) <= most or slots.bulk_rows() <= SLOTS * SHARE
    # One single call always runs, and still all that waits gets its turn.
    for _ in range(2 * len(operations)):
        slots.submit(1, is_bulk=False)
        for worker in range(WORKERS):
            slots.finish(worker)
            slots.take(worker)
    bulk_waits = [one for one in slots.scheduler.stop() if one.spec.is_bulk]
    assert not bulk_waits
    for rows in slots.rows:
        slots.scheduler.finish(rows)
    assert_idle(slots.scheduler)
