"""The queue serves clients fairly, whatever they send."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Priority
from seqserve_server.engine.queue.fair_queue import MAX_NORMAL_IN_A_ROW, FairQueue
from seqserve_server.engine.request import Request

CLIENTS = ["a", "b", "c", "d"]
REQUESTS = st.lists(st.tuples(st.sampled_from(CLIENTS), st.integers(1, 20)), max_size=40)


def request(
    client: str, length: int = 3, priority: Priority = Priority.NORMAL, beam_size: int = 1
) -> Request:
    return Request(
        GenerateSpec(
            source=[4] * length,
            options=DecodingOptions(max_decoding_length=99, beam_size=beam_size),
            client_id=client,
            priority=priority,
        )
    )


def filled(sent: list[tuple[str, int]]) -> FairQueue:
    queue = FairQueue()
    for client, length in sent:
        queue.add(request(client, length))
    return queue


def serve(queue: FairQueue) -> Request:
    one = next(iter(queue))
    queue.serve(one)
    return one


@given(REQUESTS, st.integers(0, 40))
def test_new_client_waits_for_at_most_one_request_of_each_other_client(
    sent: list[tuple[str, int]], served: int
) -> None:
    queue = filled(sent)
    for _ in range(min(served, len(queue))):
        serve(queue)
    newcomer = request("newcomer")
    expected = queue.work_before("newcomer", Priority.NORMAL)
    queue.add(newcomer)
    before = []
    while (one := serve(queue)) is not newcomer:
        before.append(one)
    assert max(Counter(one.spec.client_id for one in before).values(), default=0) <= 1
    assert sum(one.spec.work for one in before) == expected


@given(REQUESTS, st.integers(0, 40), st.sampled_from(CLIENTS), st.sampled_from(Priority))
def test_work_before_a_request_is_the_work_that_is_served_before_it(
    sent: list[tuple[str, int]], served: int, client: str, priority: Priority
) -> None:
    queue = filled(sent)
    for _ in range(min(served, len(queue))):
        serve(queue)
    expected = queue.work_before(client, priority)
    newest = request(client, priority=priority)
    queue.add(newest)
    before = []
    while (one := serve(queue)) is not newest:
        before.append(one.spec.work)
    # Low priority is served after a number of requests of normal priority.
    if priority is Priority.NORMAL or len(before) < MAX_NORMAL_IN_A_ROW:
        assert sum(before) == expected


@given(REQUESTS)
def test_waiting_clients_get_equal_shares_of_work(sent: list[tuple[str, int]]) -> None:
    queue = filled(sent)
    done: Counter[str] = Counter()
    max_work = 2 * 20
    while len({one.spec.client_id for one in queue}) == len({client for client, _ in sent}) > 1:
        one = serve(queue)
        done[one.spec.client_id] += one.spec.work
        shares = [done[client] for client in {client for client, _ in sent}]
        assert max(shares) - min(shares) <= 2 * max_work


@given(REQUESTS)
def test_requests_of_one_client_are_served_in_order(sent: list[tuple[str, int]]) -> None:
    queue = FairQueue()
    requests = [request(client, length) for client, length in sent]
    for one in requests:
        queue.add(one)
    served = [serve(queue) for _ in requests]
    for client in CLIENTS:
        assert [one for one in served if one.spec.client_id == client] == [
            one for one in requests if one.spec.client_id == client
        ]


@given(REQUESTS, st.data())
def test_clients_without_requests_are_forgotten(
    sent: list[tuple[str, int]], data: st.DataObject
) -> None:
    queue = filled(sent)
    while queue:
        one = data.draw(st.sampled_from(list(queue)))
        if data.draw(st.booleans()):
            queue.leave(one)
        else:
            queue.serve(one)
            queue.forget(one)
    assert queue.rows == queue.tokens == queue.clients == 0
    queue.assert_idle()


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


def test_heavy_requests_of_one_client_do_not_delay_light_ones_of_another() -> None:
    queue = FairQueue()
    for _ in range(4):
        queue.add(request("heavy", 60))
    for _ in range(8):
        queue.add(request("light", 6))
    assert [serve(queue).spec.client_id for _ in range(9)] == ["heavy"] + ["light"] * 8


def test_low_priority_waits_for_all_requests_of_normal_priority() -> None:
    queue = filled([("a", 3), ("b", 5)])
    assert queue.work_before("c", Priority.LOW) == 2 * (3 + 5)
    assert queue.waiting("a", Priority.NORMAL) == (1, 3)
    assert queue.waiting("a", Priority.LOW) == (0, 0)


def test_rows_are_the_slots_that_waiting_requests_will_take() -> None:
    queue, beam = FairQueue(), request("a", beam_size=4)
    for one in (beam, request("b")):
        queue.add(one)
    assert (queue.rows, queue.tokens) == (5, 6)
    queue.serve(beam)
    assert (queue.rows, queue.tokens) == (1, 3)
