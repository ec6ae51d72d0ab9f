import pytest

from seqserve_server.engine.queue.request_queue import Pace


def paced(slots: int, *held_s: float, rows: int = 1) -> Pace:
    """Lets requests of work 10 end."""
    pace = Pace(slots)
    for each_s in held_s:
        pace.ended(10, rows, each_s)
    return pace


def test_few_requests_give_no_estimate() -> None:
    assert not paced(1, 0.1, 0.1, 0.1).is_known
    assert paced(1, 0.1, 0.1, 0.1, 0.1).is_known


def test_duration_follows_work_and_slots() -> None:
    assert paced(1, *[0.2] * 9).duration_s(10) == pytest.approx(0.2)
    assert paced(4, *[0.2] * 9).duration_s(10) == pytest.approx(0.05)
    assert paced(4, *[0.2] * 9).duration_s(0) == 0.0
    assert paced(8, *[0.2] * 9, rows=4).duration_s(25) == pytest.approx(0.25)


def test_first_requests_weigh_the_same_and_later_ones_more() -> None:
    assert paced(1, 0.1, 0.2, 0.3, 0.4).duration_s(10) == pytest.approx(0.25)
    assert 0.3 < paced(1, *[0.1] * 1000, *[0.4] * 40).duration_s(10) < 0.4


def test_larger_requests_at_the_same_speed_keep_the_estimate() -> None:
    pace = paced(2, *[0.1] * 20)
    for _ in range(200):
        pace.ended(30, 1, 0.3)
    assert pace.duration_s(10) == pytest.approx(0.05)
