"""How long a request may wait while more comes than can be done."""

from __future__ import annotations

from seqserve_server.engine.queue.congestion import BURST_S, LASTING_S, Congestion

HELD_S = 0.4


def longest_s(congestion: Congestion, now_s: float) -> float:
    return congestion.max_wait_s(now_s, HELD_S, HELD_S / 8)


def test_wait_is_long_until_a_request_is_refused() -> None:
    assert longest_s(Congestion(), 100.0) == BURST_S


def test_wait_is_half_a_service_time_after_a_refusal() -> None:
    congestion = Congestion()
    congestion.note(100.0)
    assert longest_s(congestion, 100.0) == longest_s(congestion, 101.9) == HELD_S / 2
    assert longest_s(congestion, 102.0) == BURST_S


def test_two_requests_may_wait_in_any_case() -> None:
    congestion = Congestion()
    congestion.note(100.0)
    assert congestion.max_wait_s(100.0, HELD_S, HELD_S / 4) == HELD_S / 2
    assert congestion.max_wait_s(100.0, HELD_S, HELD_S / 2) == HELD_S
    assert congestion.max_wait_s(100.0, HELD_S, HELD_S) == 2 * HELD_S


def test_every_refusal_prolongs_the_congestion() -> None:
    congestion = Congestion()
    congestion.note(100.0)
    congestion.note(101.5)
    assert longest_s(congestion, 103.4) == HELD_S / 2
    assert longest_s(congestion, 103.5) == BURST_S


def test_long_queue_is_tried_again_once_a_minute() -> None:
    congestion = Congestion()
    for tenths in range(600):
        congestion.note(100.0 + tenths / 10)
        assert longest_s(congestion, 100.0 + tenths / 10) == HELD_S / 2
    assert longest_s(congestion, 160.0) == BURST_S
    congestion.note(161.0)
    assert longest_s(congestion, 220.9) == BURST_S, "nothing was refused for a while"
    congestion.note(221.0)
    assert longest_s(congestion, 222.0) == HELD_S / 2


def test_slow_requests_may_wait_longer() -> None:
    congestion = Congestion()
    assert congestion.max_wait_s(100.0, 3.0, 0.1) == 6.0
    congestion.note(100.0)
    assert congestion.max_wait_s(100.0, 3.0, 0.1) == 1.5


def refusing(congestion: Congestion, *times_s: float) -> bool:
    """Refuses at some times; tells whether what waits at the last is too much."""
    for now_s in times_s:
        congestion.note(now_s)
    return congestion.has_surplus(times_s[-1])


def test_requests_of_a_burst_stay_in_the_queue() -> None:
    congestion = Congestion()
    assert not congestion.has_surplus(100.0)
    assert not refusing(congestion, 100.0, 100.1, 100.2)
    assert not congestion.has_surplus(101.0), "none was refused since"
    assert not refusing(congestion, 103.0), "another burst"


def test_lasting_overload_leaves_a_surplus_once() -> None:
    congestion = Congestion()
    assert refusing(congestion, 100.0, 100.0 + LASTING_S)
    congestion.clear()
    assert not refusing(congestion, 101.0, 102.0), "it is looked through once"
    assert not congestion.has_surplus(110.0)
    assert refusing(congestion, 110.0, 111.0)
