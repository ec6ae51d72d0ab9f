from __future__ import annotations

import threading

import pytest

from seqserve_server.engine import scheduler as module
from seqserve_server.engine.request import DecodingOptions, Request, RequestState
from seqserve_server.engine.scheduler import Scheduler
from seqserve_server.errors import Draining, QueueFull

PATIENCE_S = 30.0


def request(length: int = 3, deadline_s: float | None = None) -> Request:
    return Request(
        source=[4] * length,
        options=DecodingOptions(max_decoding_length=5),
        receive=lambda event: None,
        deadline_s=deadline_s,
    )


def submitted(scheduler: Scheduler, *lengths: int) -> list[Request]:
    requests = [request(length) for length in lengths]
    for one in requests:
        scheduler.submit(one)
    return requests


def test_oldest_is_first() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    a, b, c = submitted(scheduler, 3, 3, 3)
    assert scheduler.take(held=0, free=2, budget_tokens=100) == [a, b]
    assert scheduler.take(held=2, free=1, budget_tokens=100) == [c]
    assert (scheduler.running, scheduler.queue_depth) == (3, 0)


def test_full_queue_refuses_and_says_when_to_try_again() -> None:
    scheduler = Scheduler(workers=1, max_queue=2)
    submitted(scheduler, 1, 1)
    extra = request()
    with pytest.raises(QueueFull, match="2 requests are waiting") as caught:
        scheduler.submit(extra)
    assert caught.value.retry_after_s == 0.05
    assert extra.state is RequestState.NEW
    scheduler.take(held=0, free=1, budget_tokens=1)
    scheduler.submit(extra)


@pytest.mark.parametrize(
    ("budget", "taken"), [(1, 1), (5, 1), (7, 1), (8, 2), (12, 3), (13, 3), (99, 4)]
)
def test_budget_bounds_all_but_the_oldest(budget: int, taken: int) -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    submitted(scheduler, 5, 3, 4, 2)
    assert len(scheduler.take(held=0, free=9, budget_tokens=budget)) == taken


def test_long_source_is_not_passed_by_shorter_ones() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    a, long, c = submitted(scheduler, 2, 50, 1)
    assert scheduler.take(held=0, free=9, budget_tokens=10) == [a]
    assert scheduler.take(held=1, free=8, budget_tokens=10) == [long]
    assert scheduler.take(held=2, free=7, budget_tokens=10) == [c]


def test_worker_takes_no_more_than_its_share() -> None:
    scheduler = Scheduler(workers=2, max_queue=9)
    submitted(scheduler, 1, 1, 1, 1, 1)
    assert len(scheduler.take(held=0, free=9, budget_tokens=99)) == 3
    assert scheduler.take(held=3, free=6, budget_tokens=99) == []
    assert len(scheduler.take(held=0, free=9, budget_tokens=99)) == 2


def test_cancel_leaves_the_queue_at_once() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    a, b = submitted(scheduler, 1, 1)
    assert scheduler.cancel(a)
    assert a.state is RequestState.DONE
    assert not scheduler.cancel(a), "it has left already"
    assert scheduler.take(held=0, free=9, budget_tokens=9) == [b]


def test_cancel_of_a_running_request_is_told_once_to_its_worker() -> None:
    scheduler = Scheduler(workers=2, max_queue=9)
    a, b = submitted(scheduler, 1, 1)
    scheduler.take(held=0, free=1, budget_tokens=9)
    scheduler.take(held=0, free=1, budget_tokens=9)
    assert not scheduler.cancel(a)
    assert scheduler.running == 2, "its slot is held until its worker lets go"
    assert scheduler.take_cancelled([b]) == []
    assert scheduler.take_cancelled([a]) == [a]
    assert scheduler.take_cancelled([a]) == []
    scheduler.finish([a])
    assert scheduler.running == 1


def test_cancel_after_the_end_or_before_the_start_is_nothing() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    [a] = submitted(scheduler, 1)
    scheduler.take(held=0, free=1, budget_tokens=9)
    scheduler.finish([a])
    assert not scheduler.cancel(a)
    assert not scheduler.cancel(request())
    assert scheduler.take_cancelled([a]) == []


def test_expire_takes_out_those_that_are_late() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    deadlines = [None, 7.0, 5.0, None, 6.0]
    requests = [request(deadline_s=deadline_s) for deadline_s in deadlines]
    for one in requests:
        scheduler.submit(one)
    assert scheduler.expire(4.9) == []
    assert scheduler.expire(5.0) == [requests[2]]
    assert scheduler.expire(6.5) == [requests[4]]
    assert scheduler.expire(6.9) == []
    assert scheduler.expire(9.0) == [requests[1]]
    left = scheduler.take(held=0, free=9, budget_tokens=99)
    assert left == [requests[0], requests[3]]


def test_deadline_of_a_request_that_left_the_queue_harms_nobody() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    first, second = request(deadline_s=1.0), request(deadline_s=3.0)
    scheduler.submit(first)
    scheduler.submit(second)
    scheduler.take(held=0, free=1, budget_tokens=9)
    assert scheduler.expire(2.0) == []
    assert first.state is RequestState.RUNNING
    assert scheduler.expire(3.0) == [second]


def test_stop_gives_what_waited_and_hands_out_nothing_more() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    a, b = submitted(scheduler, 1, 1)
    scheduler.take(held=0, free=1, budget_tokens=9)
    assert scheduler.stop() == [b]
    assert scheduler.stop() == []
    assert scheduler.stopped
    assert (a.state, b.state) == (RequestState.RUNNING, RequestState.DONE)
    assert scheduler.take(held=0, free=9, budget_tokens=9) == []
    with pytest.raises(Draining):
        scheduler.submit(request())


def test_idle_worker_is_woken() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    assert not scheduler.wait_for_work(0.0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(scheduler.wait_for_work(PATIENCE_S)))
    thread.start()
    submitted(scheduler, 1)
    thread.join(PATIENCE_S / 2)
    assert answers == [True]


def test_stop_wakes_an_idle_worker() -> None:
    scheduler = Scheduler(workers=1, max_queue=9)
    thread = threading.Thread(target=scheduler.wait_for_work, args=(PATIENCE_S,))
    thread.start()
    scheduler.stop()
    thread.join(PATIENCE_S / 2)
    assert not thread.is_alive()


def test_retry_follows_the_pace_of_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    scheduler = Scheduler(workers=1, max_queue=200)
    for _ in range(100):
        submitted(scheduler, 1)
        scheduler.finish(scheduler.take(held=0, free=1, budget_tokens=9))
        now_s[0] += 0.5
    submitted(scheduler, *[1] * 20)
    assert scheduler.retry_after_s() == pytest.approx(20 / 2 * 0.5, rel=0.01)
    submitted(scheduler, *[1] * 180)
    assert scheduler.retry_after_s() == 30.0, "there is a bound"
