from tests.unit.server.engine.idle import assert_idle

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Priority
from seqserve_server.engine.queue.fair_queue import MAX_NORMAL_IN_A_ROW, FairQueue, Waiting
from seqserve_server.engine.request import Request


def request(
    client: str = "",
    length: int = 3,
    priority: Priority = Priority.NORMAL,
    *,
    beam_size: int = 1,
    is_bulk: bool = False,
) -> Request:
    return Request(
        GenerateSpec(
            source=[4] * length,
            options=DecodingOptions(max_decoding_length=99, beam_size=beam_size),
            client_id=client,
            priority=priority,
            is_bulk=is_bulk,
        )
    )


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
        queue.add(request("a"))
        queue.add(request("a", priority=Priority.LOW))
    assert queue.count(Priority.LOW) == queue.count(Priority.NORMAL) == 40
    order = [serve(queue).spec.priority for _ in range(80)]
    assert order.index(Priority.LOW) == MAX_NORMAL_IN_A_ROW
    assert order[:32].count(Priority.LOW) == 2
    assert order[42:] == [Priority.LOW] * 38


def test_low_priority_waits_for_all_requests_of_normal_priority() -> None:
    queue = filled(request("a", 3), request("b", 5))
    assert queue.work_before(request("c", priority=Priority.LOW)) == 2 * (3 + 5)


def test_each_owner_and_part_is_counted_apart() -> None:
    queue = filled(
        request("a", 3),
        request("a", 5),
        request("a", 7, Priority.LOW),
        request("b", 9),
        request("a", 11, is_bulk=True),
    )
    assert queue.own(request("a").spec) == Waiting(2, 8, 2)
    assert queue.own(request("a", priority=Priority.LOW).spec) == Waiting(1, 7, 1)
    assert queue.own(request("a", is_bulk=True).spec) == Waiting(1, 11, 1)
    assert queue.own(request("c").spec) == Waiting()
    assert queue.part(request().spec) == Waiting(4, 24, 4)
    assert queue.part(request(is_bulk=True).spec) == Waiting(1, 11, 1)
    assert (len(queue), queue.clients) == (5, 2)
    for one in list(queue):
        queue.leave(one)
    assert_idle(queue)


def test_rows_are_the_slots_that_waiting_requests_will_take() -> None:
    beam = request("a", beam_size=4)
    queue = filled(beam, request("b"))
    assert queue.rows == 5
    queue.serve(beam)
    assert queue.rows == 1
