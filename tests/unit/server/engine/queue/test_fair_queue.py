from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import queued

from seqserve_server.contract.request import Priority
from seqserve_server.engine.queue.fair_queue import MAX_NORMAL_IN_A_ROW, FairQueue, Waiting
from seqserve_server.engine.request import Request


def filled(*requests: Request) -> FairQueue:
    queue = FairQueue()
    for one in requests:
        queue.add(one)
    return queue


def serve(queue: FairQueue) -> Request:
    one = next(iter(queue))
    queue.serve(one)
    return one


def test_neither_priority_starves() -> None:
    queue = FairQueue()
    for _ in range(40):
        queue.add(queued(caller="a"))
        queue.add(queued(caller="a", priority=Priority.LOW))
    assert queue.count(Priority.LOW) == queue.count(Priority.NORMAL) == 40
    order = [serve(queue).spec.priority for _ in range(80)]
    assert order.index(Priority.LOW) == MAX_NORMAL_IN_A_ROW
    assert order[:32].count(Priority.LOW) == 2
    assert order[42:] == [Priority.LOW] * 38


def test_low_priority_waits_for_all_requests_of_normal_priority() -> None:
    queue = filled(queued(3, caller="a"), queued(5, caller="b"))
    assert queue.work_before(queued(caller="c", priority=Priority.LOW)) == 2 * (3 + 5)


def test_each_owner_and_part_is_counted_apart() -> None:
    queue = filled(
        queued(3, caller="a"),
        queued(5, caller="a"),
        queued(7, caller="a", priority=Priority.LOW),
        queued(9, caller="b"),
        queued(11, caller="a", is_bulk=True),
    )
    assert queue.own(queued(caller="a").spec) == Waiting(2, 8, 2)
    assert queue.own(queued(caller="a", priority=Priority.LOW).spec) == Waiting(1, 7, 1)
    assert queue.own(queued(caller="a", is_bulk=True).spec) == Waiting(1, 11, 1)
    assert queue.own(queued(caller="c").spec) == Waiting()
    assert queue.part(queued().spec) == Waiting(4, 24, 4)
    assert queue.part(queued(is_bulk=True).spec) == Waiting(1, 11, 1)
    assert (len(queue), queue.clients) == (5, 2)
    for one in list(queue):
        queue.leave(one)
    assert_idle(queue)


def test_rows_are_the_slots_that_waiting_requests_will_take() -> None:
    beam = queued(caller="a", rows=4)
    queue = filled(beam, queued(caller="b"))
    assert queue.rows == 5
    queue.serve(beam)
    assert queue.rows == 1
