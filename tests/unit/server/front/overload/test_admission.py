from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import Clock

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.front.overload.admission import PendingCalls


def entered(pending: PendingCalls, caller: str, most: int = 2000) -> int:
    """Adds calls of a caller until one is refused, and returns how many are in."""
    for number in range(most):
        try:
            pending.enter(caller)
        except QueueFull:
            return number
    return most


def served(pending: PendingCalls, clock: Clock, calls: int, interval_s: float) -> None:
    """Serves calls that arrive as the last ones leave."""
    for _ in range(calls):
        clock.now_s += interval_s
        pending.leave("a")
        pending.enter("a")


def test_calls_wait_up_to_a_number() -> None:
    pending = PendingCalls(clock=Clock())
    assert entered(pending, "a") == len(pending) == 256
    with pytest.raises(QueueFull) as refused:
        pending.enter("a")
    assert refused.value.bound is Bound.BACKLOG
    pending.leave("a")
    pending.enter("a")


@pytest.mark.parametrize("slots", [200, 1000])
def test_as_many_calls_wait_as_there_are_slots(slots: int) -> None:
    clock = Clock()
    pending = PendingCalls(slots, clock)
    entered(pending, "a", most=2)
    served(pending, clock, 200, 0.1)
    assert entered(pending, "a") + 2 == slots


def test_callers_leave_room_for_others() -> None:
    pending = PendingCalls(clock=Clock())
    assert entered(pending, "a") > entered(pending, "b") > entered(pending, "c") > 0


def test_fewer_calls_wait_where_they_are_served_slowly() -> None:
    clock = Clock()
    pending = PendingCalls(clock=clock)
    entered(pending, "a", most=2)
    served(pending, clock, 200, 0.0015)
    assert 180 < entered(pending, "a") + 2 < 220
    while len(pending) > 2:
        pending.leave("a")
    served(pending, clock, 200, 0.1)
    assert entered(pending, "a") + 2 == 128


def test_idle_time_does_not_count_as_slowness() -> None:
    clock = Clock()
    pending = PendingCalls(clock=clock)
    for _ in range(200):
        pending.enter("a")
        pending.leave("a")
        clock.now_s += 5.0
    assert entered(pending, "a") == 256


def test_refused_calls_come_back_one_after_the_other() -> None:
    pending = PendingCalls(clock=Clock())
    entered(pending, "a")
    times_s = []
    for _ in range(50):
        with pytest.raises(QueueFull) as refused:
            pending.enter("a")
        times_s.append(refused.value.retry_after_s)
    assert times_s == sorted(set(times_s))
    assert 0.05 <= times_s[0] < times_s[-1] < 1.0


KINDS, PAUSES_S = st.sampled_from(["enter", "leave"]), st.sampled_from([0.0, 0.001, 0.4, 1.1])


@given(st.lists(st.tuples(KINDS, st.sampled_from("abc"), PAUSES_S), max_size=200))
def test_never_more_or_less_than_what_waits(events: list[tuple[str, str, float]]) -> None:
    clock = Clock()
    pending = PendingCalls(clock=clock)
    waiting: Counter[str] = Counter()
    for kind, caller, pause_s in events:
        clock.now_s += pause_s
        if kind == "enter":
            pending.enter(caller)
            waiting[caller] += 1
        elif waiting[caller]:
            pending.leave(caller)
            waiting[caller] -= 1
        assert len(pending) == waiting.total()
