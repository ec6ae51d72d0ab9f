from __future__ import annotations

import time
from collections.abc import Sequence
from unittest import mock

import pytest
from tests.unit.server.engine.fake_runtime import (
    EOS,
    VOCABULARY_SIZE,
    FakeRuntime,
    detokenize,
    expected,
    make_manifest,
)

from seqserve_server.contract.errors import DeadlinePassed, EngineFault, QueueFull, Stage
from seqserve_server.contract.events import Event, Failed, Finished, Progress, StopReason
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.manifest import Limits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Request
from seqserve_server.engine import worker as module
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.worker import Worker, doubling


class Notes:
    """An observer that keeps all it is told."""

    def __init__(self) -> None:
        self.encodings: list[list[int]] = []
        self.steps: list[int] = []
        self.first: list[Request] = []
        self.cancellations: list[Request] = []

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        self.encodings.append(list(lengths))

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        assert 0 <= outside_s <= duration_s
        self.steps.append(rows)

    def first_tokens(self, requests: Sequence[Request]) -> None:
        self.first += requests

    def ended(self, request: Request, event: Event) -> None:
        raise AssertionError("the engine tells that")

    def cancelled(self, request: Request) -> None:
        self.cancellations.append(request)


class Bench:
    """One worker that turns by hand, and all it told."""

    def __init__(self, slots: int = 4, budget_tokens: int = 100) -> None:
        self.runtime = FakeRuntime()
        self.notes = Notes()
        self.scheduler = Scheduler(QueueLimits(max_queue=100))
        self.worker = Worker(
            self.runtime, self.scheduler, slots, budget_tokens, self.notes, detokenize
        )
        self.events: list[tuple[Request, Event]] = []

    def submit(
        self,
        *source: int,
        longest: int = 10,
        shortest: int = 0,
        scored: bool = True,
        deadline_s: float | None = None,
    ) -> Request:
        request = Request(
            source=[*source, EOS],
            options=DecodingOptions(
                max_decoding_length=longest, min_decoding_length=shortest, return_scores=scored
            ),
            receive=lambda event: None,
            deadline_s=deadline_s,
        )
        self.scheduler.submit(request)
        return request

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.events += self.worker.turn()

    def finish(self) -> None:
        while self.scheduler.queue_depth or self.scheduler.running:
            self.turn()

    def told(self, request: Request) -> list[Event]:
        return [event for owner, event in self.events if owner is request]

    def assert_decoded(self, *requests: Request) -> None:
        for request in requests:
            assert self.told(request) == [expected(request.source, request.options)]

    def run_long(self, *words: int) -> list[Request]:
        """Starts rows that do not end by themselves for some turns."""
        requests = [self.submit(word, shortest=9) for word in words]
        self.turn()
        assert self.rows == requests
        return requests

    @property
    def rows(self) -> list[Request | None]:
        return self.worker._rows

    def assert_empty(self) -> None:
        assert (self.scheduler.running, self.scheduler.queue_depth) == (0, 0)


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 0.0)


def test_staggered_requests_each_get_their_own_answer() -> None:
    bench = Bench(slots=3)
    requests = []
    for number in range(12):
        source = range(5, 6 + number % 7)
        requests.append(bench.submit(*source, longest=1 + number % 10, shortest=number % 3))
        bench.turn(number % 4)
    bench.finish()
    bench.assert_decoded(*requests)
    bench.assert_empty()
    assert max(bench.runtime.rows) == 3


def test_idle_turn_tells_nothing() -> None:
    bench = Bench()
    bench.turn(2)
    assert (bench.events, bench.notes.steps) == ([], [])


def test_one_token_needs_one_turn() -> None:
    bench = Bench()
    request = bench.submit(5, longest=1, shortest=1)
    bench.turn()
    bench.assert_decoded(request)
    assert bench.told(request)[0].best.stop_reason is StopReason.LENGTH  # type: ignore[union-attr]


def test_sources_of_similar_length_are_encoded_together() -> None:
    bench = Bench(slots=5)
    sources = ((5, 6), (7,), (8, 9, 10, 11), (12,), (13,) * 8)
    requests = [bench.submit(*words) for words in sources]
    bench.turn()
    # From short to long, none more than twice as long as the shortest beside it.
    assert bench.runtime.encoded == [[2, 2, 3], [5, 9]]
    assert bench.notes.encodings == [[2, 2, 3], [5, 9]]
    bench.finish()
    bench.assert_decoded(*requests)


def test_source_that_cannot_be_encoded_takes_none_of_those_beside_it_along() -> None:
    bench = Bench()
    good, bad, other = bench.submit(5), bench.submit(VOCABULARY_SIZE), bench.submit(6)
    bench.turn()
    assert bench.runtime.encoded == [[2, 2, 2], [2], [2], [2]]
    bench.finish()
    [failed] = bench.told(bad)
    assert isinstance(failed, Failed)
    bench.assert_decoded(good, other)


def test_encoding_is_metered_between_steps() -> None:
    bench = Bench(budget_tokens=6)
    for word in (5, 6, 7, 8):
        bench.submit(word, word, longest=10, shortest=10)
    bench.turn(2)
    assert bench.runtime.encoded == [[3, 3], [3, 3]]
    assert bench.runtime.rows == [2, 4], "a step lies between"


def test_source_over_the_budget_still_gets_in() -> None:
    bench = Bench(budget_tokens=2)
    bench.submit(5, shortest=9)
    long = bench.submit(*[6] * 9)
    bench.turn(2)
    assert bench.runtime.encoded == [[2], [10]]
    bench.finish()
    bench.assert_decoded(long)


def test_streamed_words_are_those_of_the_answer() -> None:
    bench = Bench()
    other = bench.submit(9, 9)
    request = bench.submit(5, 6)
    request.streamed = True
    bench.finish()
    *progress, last = bench.told(request)
    assert last == expected(request.source, request.options)
    words = [word for event in progress if isinstance(event, Progress) for word in event.token_ids]
    assert isinstance(last, Finished)
    # What comes last comes with the answer.
    told = last.best.token_ids
    assert words == (told[:-1] if last.best.stop_reason is StopReason.LENGTH else told)
    bench.assert_decoded(other)


def test_streamed_row_is_told_beside_rows_that_are_not() -> None:
    bench = Bench()
    requests = [bench.submit(word, 6, shortest=9) for word in (5, 6, 7)]
    requests[0].streamed = True
    bench.finish()
    assert [len(bench.told(request)) for request in requests] == [
        len(expected(requests[0].source, requests[0].options).best.token_ids),
        1,
        1,
    ]
    assert bench.worker._streamed == 0


def test_moved_row_keeps_its_deadline() -> None:
    bench = Bench()
    now_s = time.monotonic()
    short = bench.submit(5, longest=1, deadline_s=now_s + 9000)
    late = bench.submit(6, 7, shortest=9, deadline_s=now_s + 1000)
    bench.turn()
    bench.assert_decoded(short)
    with mock.patch.object(module.time, "monotonic", lambda: now_s + 2000):
        bench.turn()
    [failed] = bench.told(late)
    assert isinstance(failed, Failed)
    bench.assert_empty()


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows that were copied, from where to where."""
    moves: list[tuple[int, int]] = []
    move = SlotCache.move

    def note(cache: SlotCache, source: int, target: int) -> None:
        moves.append((source, target))
        move(cache, source, target)

    monkeypatch.setattr(SlotCache, "move", note)
    return moves


def test_holes_are_filled_from_the_lowest_and_only_the_rest_by_moving(
    moves: list[tuple[int, int]],
) -> None:
    bench = Bench(slots=5)
    a, b, c, d, e = bench.run_long(5, 6, 7, 8, 9)
    for request in (d, a, c):
        bench.scheduler.cancel(request)
    new, newer = bench.submit(10, shortest=9), bench.submit(11, shortest=9)
    bench.turn()
    assert bench.rows == [new, b, newer, e]
    assert moves == [(4, 3)]
    assert bench.runtime.rows == [5, 4]
    bench.finish()
    bench.assert_decoded(b, e, new, newer)


@pytest.mark.parametrize("gone", [[0], [1, 3], [0, 1, 2, 3]])
def test_nothing_is_moved_where_as_many_join_as_leave(
    gone: list[int], moves: list[tuple[int, int]]
) -> None:
    bench = Bench(slots=4)
    requests = bench.run_long(5, 6, 7, 8)
    for row in gone:
        bench.scheduler.cancel(requests[row])
    for row in gone:
        requests[row] = bench.submit(20 + row, shortest=9)
    bench.turn()
    assert bench.rows == requests
    assert moves == []
    bench.finish()
    bench.assert_decoded(*requests)


@pytest.mark.parametrize(
    ("gone", "copied"),
    [([3], []), ([2, 3], []), ([0], [(3, 0)]), ([0, 1], [(3, 1), (2, 0)]), ([0, 3], [(2, 0)])],
)
def test_holes_that_nobody_fills_are_closed_by_the_last_rows(
    gone: list[int], copied: list[tuple[int, int]], moves: list[tuple[int, int]]
) -> None:
    bench = Bench(slots=4)
    requests = bench.run_long(5, 6, 7, 8)
    for row in gone:
        bench.scheduler.cancel(requests[row])
    bench.turn()
    assert moves == copied
    assert bench.runtime.rows == [4, 4 - len(gone)]
    bench.finish()
    bench.assert_decoded(*(requests[row] for row in range(4) if row not in gone))


def test_row_that_ended_leaves_its_slot_to_one_that_joins(moves: list[tuple[int, int]]) -> None:
    bench = Bench(slots=3)
    short = bench.submit(5, longest=1, shortest=1)
    others = [bench.submit(word, shortest=9) for word in (6, 7)]
    bench.turn()
    bench.assert_decoded(short)
    new = bench.submit(8, shortest=9)
    bench.turn()
    assert bench.rows == [new, *others]
    assert moves == []


def test_rows_that_ended_and_those_cancelled_since_leave_together(
    moves: list[tuple[int, int]],
) -> None:
    bench = Bench(slots=4)
    cancelled = bench.submit(5, shortest=9)
    short = bench.submit(6, longest=1, shortest=1)
    others = [bench.submit(word, shortest=9) for word in (7, 8)]
    bench.turn()
    bench.scheduler.cancel(cancelled)
    new = bench.submit(9, shortest=9)
    bench.turn()
    assert bench.rows == [new, others[1], others[0]]
    assert moves == [(3, 1)]
    bench.finish()
    bench.assert_decoded(short, new, *others)
    assert bench.scheduler._pace._ended == 4, "nothing is learnt from one who left early"


def test_no_step_runs_over_a_dead_row() -> None:
    bench = Bench(slots=4)
    requests: list[Request] = []

    def look() -> None:
        assert all(bench.rows), "a row is dead"
        assert bench.runtime.rows[-1] == len(bench.rows) == bench.scheduler.running

    bench.runtime.before_step = look
    for number in range(30):
        longest, source = 1 + number % 7, range(5, 6 + number % 5)
        requests.append(bench.submit(*source, longest=longest, scored=number % 3 == 0))
        bench.turn(number % 3)
    bench.finish()
    bench.assert_decoded(*requests)
    bench.assert_empty()


def test_longest_row_gives_way_to_a_shorter_one_within_a_turn() -> None:
    """The step of the fake looks at the lengths it is told, to the last token."""
    bench = Bench(slots=2)
    long = bench.submit(*range(5, 14), shortest=9)
    bench.turn(3)
    other = bench.submit(5, 6, shortest=9)
    bench.turn()
    bench.scheduler.cancel(long)
    new = bench.submit(7, shortest=9)
    bench.turn()
    assert bench.runtime.rows == [1, 1, 1, 2, 2]
    bench.finish()
    bench.assert_decoded(other, new)


def test_scores_are_computed_only_while_a_row_asks() -> None:
    bench = Bench()
    plain = bench.submit(5, 6, shortest=9, scored=False)
    bench.turn()
    asking = [bench.submit(7, longest=length, shortest=length) for length in (2, 3)]
    bench.turn(4)
    assert bench.runtime.returned_logprobs == [False, True, True, True, False]
    bench.finish()
    bench.assert_decoded(plain, *asking)
    assert bench.told(plain)[0].best.score is None  # type: ignore[union-attr]


def test_row_that_asks_and_is_cancelled_asks_no_more() -> None:
    bench = Bench()
    plain, asking = bench.submit(5, shortest=9, scored=False), bench.submit(6, shortest=9)
    bench.turn()
    bench.scheduler.cancel(asking)
    bench.turn()
    assert bench.runtime.returned_logprobs == [True, False]
    bench.finish()
    bench.assert_decoded(plain)


def test_row_that_is_moved_goes_on_asking() -> None:
    bench = Bench()
    first, plain, asking = (bench.submit(word, shortest=9, scored=word == 7) for word in (5, 6, 7))
    bench.turn()
    bench.scheduler.cancel(first)
    bench.finish()
    bench.assert_decoded(plain, asking)


def test_timeline_rises() -> None:
    bench = Bench()
    request = bench.submit(5, 6, shortest=3)
    bench.finish()
    line = request.timeline
    stages = [
        line.arrived_s,
        line.encode_began_s,
        line.encode_ended_s,
        line.first_token_s,
        line.finished_s,
    ]
    assert stages == sorted(stages)
    assert stages[0] > 0
    assert bench.notes.first == [request]


def test_cancelled_row_leaves_before_the_next_step_and_tells_nothing() -> None:
    bench = Bench()
    requests = [bench.submit(5, word, shortest=9) for word in (5, 6, 7)]
    bench.turn()
    bench.scheduler.cancel(requests[0])
    bench.turn()
    assert bench.runtime.rows == [3, 2]
    assert bench.notes.cancellations == [requests[0]]
    bench.finish()
    assert bench.told(requests[0]) == []
    bench.assert_decoded(*requests[1:])
    bench.assert_empty()


def test_request_cancelled_while_it_is_encoded_leaves_too() -> None:
    bench = Bench()
    request = bench.submit(5, shortest=9)
    bench.runtime.before_encode = lambda: bench.scheduler.cancel(request) and None
    bench.turn(2)
    bench.assert_empty()
    assert bench.told(request) == []
    assert bench.notes.cancellations == [request]


def test_freed_slot_is_taken_in_the_same_turn() -> None:
    bench = Bench(slots=1)
    first, second = bench.submit(5, shortest=9), bench.submit(6, shortest=9)
    bench.turn()
    bench.scheduler.cancel(first)
    bench.turn()
    assert bench.runtime.encoded == [[2], [2]]
    bench.finish()
    bench.assert_decoded(second)


def test_deadline_in_the_queue_costs_no_slot() -> None:
    bench = Bench()
    request = bench.submit(5, deadline_s=time.monotonic())
    bench.turn()
    [failed] = bench.told(request)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, DeadlinePassed)
    assert failed.error.where is Stage.QUEUE
    assert bench.runtime.encoded == []
    bench.assert_empty()


def test_what_is_too_much_is_told_without_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(slots=1)
    [running] = bench.run_long(5)
    waiting = bench.submit(6)
    full = QueueFull("more has come for a while than can be done", 1.0)

    def shed(now_s: float) -> list[tuple[Request, QueueFull]]:
        return [(waiting, full)] if bench.scheduler.cancel(waiting) else []

    monkeypatch.setattr(bench.scheduler, "shed", shed)
    bench.finish()
    assert bench.told(waiting) == [Failed(full)]
    bench.assert_decoded(running)
    assert bench.runtime.encoded == [[2]]


def test_deadline_while_decoding_frees_the_slot_of_that_row_only() -> None:
    bench = Bench()
    now_s = time.monotonic()
    others = [bench.submit(5, 6), bench.submit(7, 8)]
    late = bench.submit(9, shortest=9, deadline_s=now_s + 1000)
    more = bench.submit(10, 11, deadline_s=now_s + 9000)
    bench.turn()
    with mock.patch.object(module.time, "monotonic", lambda: now_s + 2000):
        bench.turn()
    [failed] = bench.told(late)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, DeadlinePassed)
    assert failed.error.where is Stage.DECODE
    bench.finish()
    bench.assert_decoded(*others, more)
    bench.assert_empty()


def test_row_both_cancelled_and_late_leaves_once() -> None:
    bench = Bench()
    now_s = time.monotonic()
    request = bench.submit(5, shortest=9, deadline_s=now_s + 1000)
    other = bench.submit(6, shortest=9)
    bench.turn()
    bench.scheduler.cancel(request)
    with mock.patch.object(module.time, "monotonic", lambda: now_s + 2000):
        bench.turn()
    assert bench.told(request) == []
    bench.finish()
    bench.assert_decoded(other)
    bench.assert_empty()


def test_tokens_done_are_kept_of_whoever_leaves_early() -> None:
    bench = Bench()
    now_s = time.monotonic()
    gone, late = bench.submit(5, shortest=9), bench.submit(6, shortest=9, deadline_s=now_s + 1000)
    other = bench.submit(7, shortest=9)
    bench.turn(3)
    bench.scheduler.cancel(gone)
    waiting = bench.submit(8, deadline_s=now_s + 1000)
    with mock.patch.object(module.time, "monotonic", lambda: now_s + 2000):
        bench.turn()
    assert (gone.tokens_done, late.tokens_done, waiting.tokens_done) == (3, 3, 0)
    bench.finish()
    [answer] = bench.told(other)
    assert isinstance(answer, Finished)
    assert other.tokens_done == len(answer.best.token_ids)


def test_source_that_cannot_be_encoded_fails_alone() -> None:
    bench = Bench()
    running = bench.submit(5, 6, shortest=9)
    bench.turn()
    broken = bench.submit(VOCABULARY_SIZE)
    fine = bench.submit(7, 8, 9)
    bench.finish()
    [failed] = bench.told(broken)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, EngineFault)
    bench.assert_decoded(running, fine)
    bench.assert_empty()


def test_source_that_cannot_be_encoded_leaves_no_hole(moves: list[tuple[int, int]]) -> None:
    bench = Bench()
    running = bench.run_long(5, 6, 7)
    bench.scheduler.cancel(running[0])
    bench.scheduler.cancel(running[1])
    # The shorter one comes first: its slot is still to be filled by the longer one.
    broken, fine = bench.submit(VOCABULARY_SIZE), bench.submit(8, 9, shortest=9)
    bench.turn()
    assert bench.rows == [fine, running[2]]
    assert moves == [(2, 1)]
    [failed] = bench.told(broken)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, EngineFault)
    bench.finish()
    bench.assert_decoded(fine, running[2])
    bench.assert_empty()


def test_all_sources_of_a_turn_fail_and_the_rows_run_on() -> None:
    bench = Bench()
    running = bench.run_long(5, 6, 7)
    bench.scheduler.cancel(running[1])
    broken = [bench.submit(VOCABULARY_SIZE), bench.submit(5, VOCABULARY_SIZE)]
    bench.turn()
    assert bench.rows == [running[0], running[2]]
    assert all(isinstance(bench.told(request)[0], Failed) for request in broken)
    bench.finish()
    bench.assert_decoded(running[0], running[2])
    bench.assert_empty()


def test_fault_while_a_row_joins_a_hole_loses_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    running = bench.run_long(5, 6, 7)
    bench.scheduler.cancel(running[0])
    joining = [bench.submit(8, shortest=9), bench.submit(9, 9, shortest=9)]
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(bench.worker._cache, "join", lambda *given: fault())
        bench.turn()
    bench.events += bench.worker.fail(EngineFault("a row could not join"))
    for request in (*running[1:], *joining):
        [failed] = bench.told(request)
        assert isinstance(failed, Failed)
    assert bench.told(running[0]) == []
    bench.assert_empty()
    after = [bench.submit(10, scored=False), bench.submit(11, 12, scored=False)]
    bench.finish()
    bench.assert_decoded(*after)
    assert not any(bench.runtime.returned_logprobs[-2:]), "a row that is gone still asks"


def fault() -> None:
    raise RuntimeError("the step graph broke")


def test_fault_in_a_step_ends_all_rows_and_the_next_requests_run() -> None:
    bench = Bench()
    requests = [bench.submit(5, 6), bench.submit(7)]
    requests[0].streamed = True
    bench.turn()
    bench.events.clear()
    bench.runtime.before_step = fault
    with pytest.raises(RuntimeError):
        bench.turn()
    bench.events += bench.worker.fail(EngineFault("a step failed"))
    for request in requests:
        [failed] = bench.told(request)
        assert isinstance(failed, Failed)
    bench.assert_empty()
    bench.runtime.before_step = lambda: None
    after = [bench.submit(5, 6), bench.submit(8)]
    bench.finish()
    bench.assert_decoded(*after)


def test_fault_loses_nothing_that_the_turn_had_to_tell() -> None:
    bench = Bench()
    bench.submit(5, shortest=9)
    bench.turn()
    late = bench.submit(6, deadline_s=time.monotonic())
    bench.runtime.before_step = fault
    with pytest.raises(RuntimeError):
        bench.turn()
    bench.events += bench.worker.fail(EngineFault("a step failed"))
    [failed] = bench.told(late)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, DeadlinePassed)


def test_warm_up_outgrows_no_cache_and_leaves_no_trace() -> None:
    runtime = FakeRuntime(make_manifest(limits=Limits(max_source_length=1, max_target_length=1)))
    worker = Worker(runtime, Scheduler(QueueLimits(max_queue=1)), 9, 100, Notes(), detokenize)
    memory = runtime.encode([[EOS]])
    worker.warm_up(memory)
    assert runtime.rows == [1, 2, 4, 8, 9]
    assert worker._cache.lengths.tolist() == [0] * 9


@pytest.mark.parametrize(
    ("most", "sizes"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8])]
)
def test_doubling(most: int, sizes: list[int]) -> None:
    assert doubling(most) == sizes
