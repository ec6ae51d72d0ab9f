import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.clock import Clock
from tests.unit.server.engine.requests import queued

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority
from seqserve_server.engine.packing import CrossKV, EncodedSource
from seqserve_server.engine.queue.bulk_share import PATIENCE_S, SHARE
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.request import Request, RequestState
from seqserve_server.front.engine_client.engine import QueueKey, RefusalCache

TIMEOUT_S = 60.0


def submit(scheduler: Scheduler, *requests: Request) -> None:
    for one in requests:
        scheduler.submit(one)


def submitted(scheduler: Scheduler, *lengths: int) -> list[Request]:
    requests = [queued(length) for length in lengths]
    submit(scheduler, *requests)
    return requests


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(QueueLimits(max_queue=99))


@pytest.mark.parametrize(
    "wake", [lambda scheduler: scheduler.submit(queued()), Scheduler.stop], ids=["request", "end"]
)
def test_idle_worker_is_woken(scheduler: Scheduler, wake: Callable[[Scheduler], object]) -> None:
    assert not scheduler.wait_for_work(0.0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(scheduler.wait_for_work(TIMEOUT_S)))
    thread.start()
    wake(scheduler)
    thread.join(TIMEOUT_S / 2)
    assert answers == [True]


def test_nothing_is_encoded_ahead_while_slots_are_free_for_all() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=9), workers=2, slots=4)
    submitted(scheduler, 3, 3, 3)
    assert scheduler.take_ahead(100) == []


def test_request_that_is_being_encoded_is_taken_by_nobody_else(scheduler: Scheduler) -> None:
    a, b = submitted(scheduler, 3, 3)
    assert scheduler.take_ahead(3) == [a]
    assert scheduler.take(busy=0, free=1, budget_tokens=100) == [b]
    a.encoded = EncodedSource(CrossKV([], [], []), 0)
    scheduler.note_encoded([a])
    assert scheduler.take(busy=0, free=1, budget_tokens=100) == [a]


def test_tokens_that_wait_encoded_are_bounded(scheduler: Scheduler) -> None:
    requests = submitted(scheduler, *[3] * 9)
    taken = [scheduler.take_ahead(6) for _ in range(3)]
    assert taken == [requests[:2], requests[2:4], []]
    assert scheduler.queue_depth == 9


def test_full_queue_refuses_with_a_retry_time() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=2))
    submitted(scheduler, 1, 1)
    extra = queued()
    with pytest.raises(QueueFull, match="2 requests are waiting") as caught:
        scheduler.submit(extra)
    assert caught.value.retry_after_s == 0.5, "the pace is not known"
    assert extra.state is RequestState.NEW
    scheduler.take(busy=0, free=1, budget_tokens=1)
    scheduler.submit(extra)


@pytest.mark.parametrize(
    ("budget", "taken"), [(1, 1), (5, 1), (7, 1), (8, 2), (12, 3), (13, 3), (99, 4)]
)
def test_budget_bounds_all_but_the_oldest(budget: int, taken: int) -> None:
    scheduler = Scheduler(QueueLimits(max_queue=9))
    submitted(scheduler, 5, 3, 4, 2)
    assert len(scheduler.take(busy=0, free=9, budget_tokens=budget)) == taken


def test_worker_takes_no_more_than_its_share() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=9), workers=2)
    submitted(scheduler, 1, 1, 1, 1, 1)
    assert len(scheduler.take(busy=0, free=9, budget_tokens=99)) == 3
    assert scheduler.take(busy=3, free=6, budget_tokens=99) == []
    assert len(scheduler.take(busy=0, free=9, budget_tokens=99)) == 2


def paced(
    interval_s: float, *, slots: int = 1, max_queue: int = 200, **bounds: Any
) -> tuple[Scheduler, Clock]:
    """Makes a scheduler whose requests, of work 6, have each occupied one slot for a time."""
    clock = Clock()
    scheduler = Scheduler(QueueLimits(max_queue=max_queue, **bounds), slots=slots, clock=clock)
    for _ in range(9):
        submitted(scheduler, 3)
        taken = scheduler.take(busy=0, free=1, budget_tokens=9)
        clock.now_s += interval_s
        scheduler.finish(taken)
    return scheduler, clock


def refusal(scheduler: Scheduler, one: Request) -> QueueFull:
    with pytest.raises(QueueFull) as caught:
        scheduler.submit(one)
    return caught.value


def test_retry_follows_the_pace_of_completions() -> None:
    scheduler, _ = paced(0.5, max_queue=20)
    submitted(scheduler, *[3] * 20)
    full = refusal(scheduler, queued())
    assert full.retry_after_s == pytest.approx(20 * 0.5)
    assert full.spacing_s == pytest.approx(0.5)


def test_clients_that_share_the_engine_retry_at_longer_intervals() -> None:
    scheduler, _ = paced(0.5, max_queue=4)
    for number in range(4):
        scheduler.submit(queued(caller=f"{number}"))
    assert refusal(scheduler, queued()).spacing_s == pytest.approx(4 * 0.5)


def test_requests_that_left_early_do_not_change_the_pace() -> None:
    scheduler, _ = paced(0.5, max_queue=20)
    for _ in range(50):
        submitted(scheduler, 3)
        scheduler.finish(scheduler.take(busy=0, free=1, budget_tokens=9), answered=False)
    submitted(scheduler, *[3] * 20)
    assert refusal(scheduler, queued()).retry_after_s == pytest.approx(20 * 0.5)


def test_long_wait_is_refused_but_not_to_low_priority() -> None:
    scheduler, _ = paced(0.5, max_queue_s=2.0)
    submitted(scheduler, *[3] * 5)
    error = refusal(scheduler, queued())
    assert (error.bound, str(error)) == (Bound.WAIT, "it would wait for about 2.5 s")
    scheduler.submit(queued(priority=Priority.LOW))
    scheduler.submit(queued(caller="other"))  # It would be among the first.


def test_short_wait_is_never_refused() -> None:
    scheduler, clock = paced(0.01, max_queue_s=None)
    submitted(scheduler, *[3] * 30)
    assert str(refusal(scheduler, queued())) == "it would wait for about 0.3 s"
    early = queued(deadline_s=clock.now_s + 0.1)
    assert refusal(scheduler, early).bound is Bound.DEADLINE, "its own deadline decides first"


def test_slow_requests_may_wait_for_half_of_what_they_take() -> None:
    scheduler, _ = paced(4.0, max_queue_s=None, slots=16)
    submitted(scheduler, *[3] * 16)
    assert len(scheduler.take(busy=0, free=16, budget_tokens=99)) == 16
    submitted(scheduler, *[3] * 9)
    assert str(refusal(scheduler, queued())) == "it would wait for about 2.25 s"


def test_two_may_wait_where_one_runs_at_once() -> None:
    scheduler, _ = paced(4.0, max_queue_s=None)
    submitted(scheduler, 3)
    for caller in ("first", "second"):
        scheduler.submit(queued(caller=caller))
    assert str(refusal(scheduler, queued(caller="third"))) == "it would wait for about 12 s"


def test_sources_of_bulk_calls_bar_no_other_request() -> None:
    scheduler, _ = paced(0.5, max_queue=8, max_queue_s=1.0, caller_share=0.5)
    bulk = [queued(flow="bulk call", is_bulk=True) for _ in range(6)]
    submit(scheduler, *bulk[:5])
    assert refusal(scheduler, bulk[5]).bound is Bound.CALLER
    single = queued(flow="connection")
    scheduler.submit(single)
    order = [scheduler.take(busy=0, free=1, budget_tokens=9)[0] for _ in range(2)]
    assert order == [bulk[0], single]


def test_sources_of_a_bulk_call_are_not_refused_for_their_wait_but_for_their_deadline() -> None:
    scheduler, clock = paced(0.5, max_queue_s=1.0)
    for _ in range(9):
        scheduler.submit(queued(is_bulk=True))
    late = queued(is_bulk=True, deadline_s=clock.now_s + 1.0)
    assert refusal(scheduler, late).bound is Bound.DEADLINE


def test_flow_with_one_request_passes_the_others_of_its_client() -> None:
    scheduler, _ = paced(0.5, max_queue_s=3.5)
    for flow in ("a", "b"):
        for _ in range(4):
            scheduler.submit(queued(flow=flow))
    assert refusal(scheduler, queued(flow="a")).bound is Bound.WAIT
    scheduler.submit(queued(flow="c"))
    flows = [scheduler.take(busy=0, free=1, budget_tokens=9)[0].spec.flow_id for _ in range(4)]
    assert flows == ["a", "b", "c", "a"]


def test_request_that_would_come_too_late_is_refused_at_once() -> None:
    scheduler, clock = paced(0.5)
    scheduler.submit(queued(deadline_s=clock.now_s + 0.1))  # Nothing is before it.
    submitted(scheduler, *[3] * 9)
    assert refusal(scheduler, queued(deadline_s=clock.now_s + 3.0)).bound is Bound.DEADLINE
    late = queued(arrived_s=clock.now_s, time_limit_s=3.0)
    assert refusal(scheduler, late).bound is Bound.DEADLINE
    scheduler.submit(queued(deadline_s=clock.now_s + 4.0))  # It is not sure to be late.


def test_one_of_many_may_wait_for_its_time_limit_but_not_for_its_deadline() -> None:
    scheduler, clock = paced(0.5)
    submitted(scheduler, *[3] * 9)
    limited = queued(arrived_s=clock.now_s, time_limit_s=3.0, is_bulk=True)
    scheduler.submit(limited)
    late = queued(deadline_s=clock.now_s + 1.0, is_bulk=True)
    assert refusal(scheduler, late).bound is Bound.DEADLINE
    assert scheduler.expire(clock.now_s + 2.9) == []
    assert scheduler.expire(clock.now_s + 3.0) == [limited]
    assert limited.expired(clock.now_s + 3.0) == Finished(
        [Hypothesis([], None, StopReason.TIME_LIMIT)]
    )


def test_nothing_is_refused_for_waiting_while_slots_are_free() -> None:
    scheduler, _ = paced(0.5, max_queue_s=0.1, slots=4)
    submitted(scheduler, *[3] * 4)
    assert refusal(scheduler, queued()).bound is Bound.WAIT
    assert len(scheduler.take(busy=0, free=2, budget_tokens=99)) == 2
    assert refusal(scheduler, queued()).bound is Bound.WAIT


def test_unknown_pace_refuses_no_request() -> None:
    clock = Clock()
    scheduler = Scheduler(QueueLimits(max_queue=99, max_queue_s=0.0), clock=clock)
    submitted(scheduler, *[3] * 9)
    for _ in range(3):
        taken = scheduler.take(busy=0, free=1, budget_tokens=9)
        clock.now_s += 9.0
        scheduler.finish(taken)
    scheduler.submit(queued(deadline_s=clock.now_s + 0.1))


def test_waiting_tokens_are_bounded_except_for_the_first_request() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=9, max_queue_tokens=10))
    [long] = submitted(scheduler, 50)
    assert refusal(scheduler, queued(1)).bound is Bound.TOKENS
    assert scheduler.take(busy=0, free=1, budget_tokens=1) == [long]
    submitted(scheduler, 4, 6)
    assert str(refusal(scheduler, queued(1))) == "10 source tokens are waiting already"


@pytest.mark.parametrize(("share", "alone"), [(0.2, 3), (0.5, 6), (0.75, 9), (1.0, 11)])
def test_client_leaves_room_for_others(share: float, alone: int) -> None:
    scheduler = Scheduler(QueueLimits(max_queue=11, caller_share=share))
    submitted(scheduler, *[1] * alone)
    if alone < 11:
        assert refusal(scheduler, queued(1)).bound is Bound.CALLER
        for number in range(11 - alone):
            scheduler.submit(queued(1, caller=f"other {number}"))
    assert refusal(scheduler, queued(1, caller="one more")).bound is Bound.LENGTH


def test_client_leaves_tokens_for_others() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=99, max_queue_tokens=100, caller_share=0.5))
    submitted(scheduler, 40, 20)
    assert refusal(scheduler, queued(1)).bound is Bound.CALLER
    scheduler.submit(queued(40, caller="other"))


def test_client_may_have_exactly_its_share() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=4, max_queue_tokens=100, caller_share=0.5))
    submitted(scheduler, 25, 25, 1)
    assert refusal(scheduler, queued(1)).bound is Bound.CALLER


def test_beam_is_passed_by_as_many_rows_as_it_takes_itself(scheduler: Scheduler) -> None:
    running = submitted(scheduler, 1)
    scheduler.take(busy=0, free=4, budget_tokens=99)
    beam = queued(1, rows=4)
    scheduler.submit(beam)
    small = submitted(scheduler, *[1] * 6)
    assert scheduler.take(busy=1, free=3, budget_tokens=99) == small[:3]
    scheduler.finish([small[0]])
    assert scheduler.take(busy=3, free=1, budget_tokens=99) == small[3:4]
    scheduler.finish([*running, *small[1:3]])
    assert scheduler.take(busy=1, free=3, budget_tokens=99) == [], "slots are kept for it"
    scheduler.finish(small[3:4])
    assert scheduler.take(busy=0, free=4, budget_tokens=99) == [beam]


def test_earlier_requests_do_not_count_as_passing(scheduler: Scheduler) -> None:
    submitted(scheduler, 1, 1)
    beam = queued(1, rows=4)
    scheduler.submit(beam)
    assert len(scheduler.take(busy=0, free=3, budget_tokens=99)) == 2
    assert beam.passed_rows == 0


class Slots:
    """Slots of an engine, whose requests end after the time that they are given."""

    def __init__(self, scheduler: Scheduler, clock: Clock, slots: int) -> None:
        self.scheduler, self.clock, self.slots = scheduler, clock, slots
        self.refusals = RefusalCache(clock)
        self.running: list[tuple[float, Request]] = []

    def tick(self) -> list[Request]:
        """Lets 10 ms pass; gives the requests that ended then."""
        self.clock.now_s += 0.01
        ended = [one for end_s, one in self.running if end_s <= self.clock.now_s]
        self.scheduler.finish(ended)
        self.running = [each for each in self.running if each[1] not in ended]
        return ended

    def retry_s(self, one: Request) -> float | None:
        """Submits a request; gives when to come again if it is refused."""
        try:
            self.scheduler.submit(one)
        except QueueFull as full:
            advice = self.refusals.refused(QueueKey.of(one.spec), full)
            return self.clock.now_s + advice.retry_after_s
        return None

    def take(self, held_s: Callable[[], float]) -> list[Request]:
        busy = len(self.running)
        taken = self.scheduler.take(busy=busy, free=self.slots - busy, budget_tokens=999)
        self.running += [(self.clock.now_s + held_s(), one) for one in taken]
        return taken


@pytest.mark.parametrize("callers", [8, 24])
@pytest.mark.parametrize("flows", [1, 4])
def test_clients_that_wait_for_each_answer_are_all_served(callers: int, flows: int) -> None:
    """Threads of one client, on some connections, call again as soon as they have an answer."""
    scheduler, clock = paced(0.05, max_queue_s=None, slots=4, caller_share=0.5)
    slots = Slots(scheduler, clock, 4)
    due_s = dict.fromkeys(range(callers), clock.now_s)
    thread_of: dict[Request, int] = {}
    answers = Counter[int]()
    for _ in range(2000):
        for one in slots.tick():
            thread = thread_of.pop(one)
            answers[thread] += 1
            due_s[thread] = clock.now_s
        for thread in [each for each, at_s in due_s.items() if at_s <= clock.now_s]:
            one = queued(flow=f"{thread % flows}", deadline_s=clock.now_s + 30.0)
            assert slots.retry_s(one) is None, "so few cannot outrun it"
            thread_of[one] = thread
            del due_s[thread]
        slots.take(lambda: 0.05)
    assert min(answers.values()) > 0.9 * max(answers.values()) and len(answers) == callers


@pytest.mark.parametrize("callers", [1, 3])
def test_client_that_follows_the_retry_advice_is_admitted(callers: int) -> None:
    """Twice as many requests as can wait arrive at once."""
    scheduler, clock = paced(0.01, max_queue_s=0.2)
    slots = Slots(scheduler, clock, 1)
    coming = [(clock.now_s, number % callers, 0) for number in range(60)]
    again = refused_again = 0
    while coming:
        slots.tick()
        slots.take(lambda: 0.01)
        due = [one for one in coming if one[0] <= clock.now_s]
        coming = [one for one in coming if one[0] > clock.now_s]
        for _, number, tries in due:
            again += tries > 0
            retry_s = slots.retry_s(queued(caller=f"{number}"))
            if retry_s is not None:
                refused_again += tries > 0
                coming.append((retry_s, number, tries + 1))
    assert again > 20
    assert refused_again <= again / 10


@pytest.mark.parametrize(("max_queue_s", "slowest_s"), [(None, 0.7), (0.14, 0.4)])
def test_flood_leaves_others_served_and_no_call_much_slower(
    max_queue_s: float | None, slowest_s: float
) -> None:
    """Requests arrive at random, at seven times the capacity."""
    held_s, ticks, clock, draw = 0.2, 2000, Clock(), random.Random(7)
    limits = QueueLimits(max_queue=512, max_queue_s=max_queue_s, caller_share=0.5)
    slots = Slots(Scheduler(limits, slots=8, clock=clock), clock, 8)
    # Requests of a tick.
    capacity = 8 * 0.01 / held_s
    rates = {"loud": 6.8 * capacity} | {f"quiet {number}": 0.05 * capacity for number in range(4)}
    sent, served = Counter[str](), Counter[str]()
    waits_s = []
    for tick in range(ticks):
        slots.tick()
        # For a while there is no flood, and the pace gets known.
        for caller in list(rates)[tick < ticks / 10 :]:
            for _ in range(int(draw.random() + rates[caller])):
                sent[caller] += 1
                slots.retry_s(queued(caller=caller, arrived_s=clock.now_s))
        taken = slots.take(lambda: draw.uniform(0.5, 1.5) * held_s)
        served.update(one.spec.client_id for one in taken)
        # Later, requests from before the first refusal have left.
        waits_s += [clock.now_s - one.spec.arrived_s for one in taken if tick > ticks / 4]
    # Of each one more may wait when the time is over.
    assert all(sent[caller] - served[caller] <= 1 for caller in rates.keys() - {"loud"})
    assert served["loud"] >= 0.7 * capacity * 0.9 * ticks
    # Estimates leave out that others come later and are served before.
    assert max(waits_s) <= slowest_s + 0.01


def bulk(*rows: int) -> list[Request]:
    return [queued(is_bulk=True, rows=each, flow="bulk") for each in rows]


def test_bulk_takes_a_part_of_the_slots_while_there_are_single_calls() -> None:
    clock = Clock()
    scheduler = Scheduler(QueueLimits(max_queue=99), slots=16, clock=clock)
    single = queued()
    submit(scheduler, single, *bulk(*[1] * 40))
    begun = scheduler.take(busy=0, free=16, budget_tokens=999)
    assert (single in begun, len(begun)) == (True, 1 + 16 * SHARE)
    scheduler.finish([single])
    clock.now_s += PATIENCE_S / 2
    assert scheduler.take(busy=4, free=12, budget_tokens=999) == []
    clock.now_s += PATIENCE_S / 2
    assert len(scheduler.take(busy=4, free=12, budget_tokens=999)) == 12


def test_single_calls_pass_bulk_that_has_its_part() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=99), slots=8)
    late, *singles = [queued(caller="single") for _ in range(4)]
    submit(scheduler, late, *bulk(*[1] * 20))
    assert len(scheduler.take(busy=0, free=8, budget_tokens=999)) == 1 + 8 * SHARE
    submit(scheduler, *singles)
    assert scheduler.take(busy=3, free=5, budget_tokens=999) == singles


def test_single_calls_beside_bulk_run_on_few_workers() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=99), workers=2, slots=32)
    singles = [queued(caller="single") for _ in range(4)]
    submit(scheduler, *singles, *bulk(*[1] * 60))
    quick = scheduler.take(busy=0, free=16, budget_tokens=999)
    # Half of the single calls, and of three tenths of the slots.
    assert ([one for one in quick if not one.spec.is_bulk], len(quick)) == (singles, 7)
    other = scheduler.take(busy=0, free=16, budget_tokens=999, worker=1)
    assert len(other) == 16 and all(one.spec.is_bulk for one in other)
    assert scheduler.take(busy=7, free=9, budget_tokens=999) == []
    # Each encodes ahead what it may take.
    assert scheduler.take_ahead(3) == []
    assert all(one.spec.is_bulk for one in scheduler.take_ahead(3, worker=1))
    late = queued(caller="single")
    scheduler.submit(late)
    scheduler.finish(other[:4])
    assert late not in scheduler.take(busy=12, free=4, budget_tokens=999, worker=1)
    assert late in scheduler.take(busy=7, free=9, budget_tokens=999)


def test_many_single_calls_beside_bulk_run_on_all_workers() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=99), workers=2, slots=16)
    submit(scheduler, *(queued(caller=f"{number}") for number in range(10)), *bulk(*[1] * 60))
    taken = [
        scheduler.take(busy=0, free=8, budget_tokens=999, worker=worker) for worker in range(2)
    ]
    assert all(any(not one.spec.is_bulk for one in each) for each in taken)
    assert sum(len(each) for each in taken) <= 10 + 16 * SHARE


def test_single_call_does_not_wait_for_a_worker_that_is_full_of_bulk() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=99), workers=2, slots=16)
    submit(scheduler, *bulk(*[1] * 60))
    first = scheduler.take(busy=0, free=8, budget_tokens=999)
    second = scheduler.take(busy=0, free=8, budget_tokens=999, worker=1)
    single = queued(caller="single")
    scheduler.submit(single)
    scheduler.finish(second[:2])
    assert len(first) == 8
    assert scheduler.take(busy=8, free=0, budget_tokens=999) == []
    assert scheduler.take(busy=6, free=2, budget_tokens=999, worker=1)[0] is single


def test_wide_beam_of_a_bulk_call_runs_beside_single_calls() -> None:
    scheduler = Scheduler(QueueLimits(max_queue=99), slots=8)
    single = queued()
    wide, second = bulk(7, 7)
    submit(scheduler, single, wide, second)
    assert scheduler.take(busy=0, free=8, budget_tokens=999) == [single, wide]
    scheduler.finish([wide])
    assert scheduler.take(busy=1, free=7, budget_tokens=999) == [second]
