"""The order of service: fair among callers, whatever they send."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority, Request
from seqserve_server.engine.queue.fair_queue import NORMAL_TURNS, FairQueue

CALLERS = ["a", "b", "c", "d"]
CALLS = st.lists(st.tuples(st.sampled_from(CALLERS), st.integers(1, 20)), max_size=40)


def request(caller: str, length: int = 3, priority: Priority = Priority.NORMAL) -> Request:
    return Request(
        source=[4] * length,
        options=DecodingOptions(max_decoding_length=99),
        receive=lambda event: None,
        caller=caller,
        priority=priority,
    )


def filled(calls: list[tuple[str, int]]) -> FairQueue:
    queue = FairQueue()
    for caller, length in calls:
        queue.add(request(caller, length))
    return queue


def serve(queue: FairQueue) -> Request:
    one = next(iter(queue))
    queue.serve(one)
    return one


@given(CALLS, st.integers(0, 40))
def test_newcomer_waits_for_at_most_one_of_each_other_caller(
    calls: list[tuple[str, int]], served: int
) -> None:
    queue = filled(calls)
    for _ in range(min(served, len(queue))):
        serve(queue)
    newcomer = request("newcomer")
    expected = queue.work_before("newcomer", Priority.NORMAL)
    queue.add(newcomer)
    before = []
    while (one := serve(queue)) is not newcomer:
        before.append(one)
    assert max(Counter(one.caller for one in before).values(), default=0) <= 1
    assert sum(one.work for one in before) == expected


@given(CALLS, st.integers(0, 40), st.sampled_from(CALLERS), st.sampled_from(Priority))
def test_work_before_is_that_of_those_served_before(
    calls: list[tuple[str, int]], served: int, caller: str, priority: Priority
) -> None:
    queue = filled(calls)
    for _ in range(min(served, len(queue))):
        serve(queue)
    expected = queue.work_before(caller, priority)
    mine = request(caller, priority=priority)
    queue.add(mine)
    before = []
    while (one := serve(queue)) is not mine:
        before.append(one.work)
    # One of low priority gets a turn before those of normal priority have all gone.
    if priority is Priority.NORMAL or len(before) < NORMAL_TURNS:
        assert sum(before) == expected


@given(CALLS)
def test_callers_who_wait_get_equal_shares_of_work(calls: list[tuple[str, int]]) -> None:
    queue = filled(calls)
    done: Counter[str] = Counter()
    most = 2 * 20
    while len({one.caller for one in queue}) == len({caller for caller, _ in calls}) > 1:
        one = serve(queue)
        done[one.caller] += one.work
        shares = [done[caller] for caller in {caller for caller, _ in calls}]
        assert max(shares) - min(shares) <= 2 * most


@given(CALLS)
def test_caller_is_served_in_the_order_of_his_calls(calls: list[tuple[str, int]]) -> None:
    queue = FairQueue()
    requests = [request(caller, length) for caller, length in calls]
    for one in requests:
        queue.add(one)
    served = [serve(queue) for _ in requests]
    for caller in CALLERS:
        assert [one for one in served if one.caller == caller] == [
            one for one in requests if one.caller == caller
        ]


@given(CALLS, st.data())
def test_nothing_is_left_of_those_who_are_gone(
    calls: list[tuple[str, int]], data: st.DataObject
) -> None:
    queue = filled(calls)
    while queue:
        one = data.draw(st.sampled_from(list(queue)))
        if data.draw(st.booleans()):
            queue.leave(one)
        else:
            queue.serve(one)
            queue.forget(one)
    assert queue.rows == queue.tokens == queue.callers == 0
    assert not (queue._holders or queue._tokens_of)
    for line in (queue._normal, queue._low):
        assert not (line.entries or line._places or line._ends or line._held)


def test_neither_priority_starves() -> None:
    queue = FairQueue()
    for _ in range(40):
        queue.add(request("a"))
        queue.add(request("a", priority=Priority.LOW))
    assert queue.waiting(Priority.LOW) == queue.waiting(Priority.NORMAL) == 40
    order = [serve(queue).priority for _ in range(80)]
    assert order.index(Priority.LOW) == NORMAL_TURNS
    assert order[:32].count(Priority.LOW) == 2
    assert order[42:] == [Priority.LOW] * 38


def test_heavy_calls_of_one_do_not_hold_up_light_ones_of_another() -> None:
    queue = FairQueue()
    for _ in range(4):
        queue.add(request("heavy", 60))
    for _ in range(8):
        queue.add(request("light", 6))
    assert [serve(queue).caller for _ in range(9)] == ["heavy"] + ["light"] * 8


def test_low_priority_waits_for_all_of_normal_priority() -> None:
    queue = filled([("a", 3), ("b", 5)])
    assert queue.work_before("c", Priority.LOW) == 2 * (3 + 5)
    assert queue.held("a", Priority.NORMAL) == (1, 3)
    assert queue.held("a", Priority.LOW) == (0, 0)


def test_rows_are_the_slots_that_those_who_wait_will_take() -> None:
    queue, beam = FairQueue(), request("a")
    beam.options = DecodingOptions(max_decoding_length=9, beam_size=4)
    for one in (beam, request("b")):
        queue.add(one)
    assert (queue.rows, queue.tokens) == (5, 6)
    queue.serve(beam)
    assert (queue.rows, queue.tokens) == (1, 3)
