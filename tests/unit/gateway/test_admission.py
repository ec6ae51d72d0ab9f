"""How many calls begin, and run at once."""

from __future__ import annotations

import pytest
from tests.clock import Clock

from seqserve_gateway.admission import Admission, Shared
from seqserve_gateway.failure import Failure


def test_a_place_is_free_again_after_the_call() -> None:
    admission = Admission(calls=1)
    with admission.call(), pytest.raises(Failure) as refused, admission.call():
        pass
    assert "under way" in refused.value.details
    with admission.call():
        pass


def test_calls_begin_at_a_rate_after_the_burst() -> None:
    clock = Clock()
    admission = Admission(rate=2, burst=3, clock=clock)

    def admitted() -> int:
        for count in range(100):
            try:
                with admission.call():
                    pass
            except Failure:
                return count
        return 100

    assert admitted() == 3
    clock.now_s += 1
    assert admitted() == 2
    clock.now_s += 3600
    assert admitted() == 3


def taken(shared: Shared, caller: str, size: int) -> str:
    try:
        shared.take(caller, size, "UNAVAILABLE", "bytes")
    except Failure as failure:
        return failure.code
    return "OK"


def test_a_caller_has_most_of_what_is_shared_and_leaves_room_for_others() -> None:
    shared = Shared(16)
    held = 0
    while taken(shared, "a", 1) == "OK":
        held += 1
    assert held == 12
    assert taken(shared, "a", 1) == "RESOURCE_EXHAUSTED"
    assert [taken(shared, "b", size) for size in (5, 3)] == ["UNAVAILABLE", "OK"]
    shared.give_back("a", 12)
    assert (taken(shared, "a", 9), shared.free) == ("OK", 4)
