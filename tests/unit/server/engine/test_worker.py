import time
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.unit.server.engine.fake_runtime import (
    EOS,
    MAX_SOURCE,
    MAX_TARGET,
    VOCABULARY_SIZE,
    FakeDraftReader,
    FakeRuntime,
    detokenize,
    expected,
    make_manifest,
)
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import generation

from seqserve_server.artifact.manifest import Limits
from seqserve_server.contract.errors import DeadlinePassed, EngineFault, Stage
from seqserve_server.contract.events import Event, Failed, Finished, Progress, StopReason
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine import worker as module
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.request import Request
from seqserve_server.engine.worker import Worker


class Notes(Observer):
    """An observer that keeps every report."""

    def __init__(self) -> None:
        self.encodings: list[list[int]] = []
        self.steps: list[int] = []
        self.first: list[Request] = []
        self.cancellations: list[Request] = []
        self.drafted_tokens: list[tuple[int, int]] = []

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        self.encodings.append(list(lengths))

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        assert 0 <= outside_s <= duration_s
        self.steps.append(rows)

    def drafted(self, drafted: int, accepted: int) -> None:
        self.drafted_tokens.append((drafted, accepted))

    def first_tokens(self, requests: Sequence[Request]) -> None:
        self.first += requests

    def ended(self, request: Request, event: Event) -> None:
        raise AssertionError("the engine reports that")

    def cancelled(self, request: Request) -> None:
        self.cancellations.append(request)


class Stepper:
    """One worker over a fake runtime, stepped by the test, and its events."""

    def __init__(self, slots: int = 4, budget_tokens: int = 100) -> None:
        self.runtime = FakeRuntime()
        self.notes = Notes()
        self.scheduler = Scheduler(QueueLimits(max_queue=100))
        self.worker = Worker(
            self.runtime, self.scheduler, slots, budget_tokens, self.notes, detokenize, idle_s=0.0
        )
        self.events: list[tuple[Request, Event]] = []

    def submit(
        self, *source: int, longest: int = 10, shortest: int = 0, scored: bool = True, **more: Any
    ) -> Request:
        options = DecodingOptions(
            max_decoding_length=longest, min_decoding_length=shortest, return_scores=scored
        )
        request = generation([*source, EOS], options, **more)
        self.scheduler.submit(request)
        return request

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.events += self.worker.step()

    def finish(self, *decoded: Request) -> None:
        """Steps until nothing is left; these requests must have their whole answers then."""
        while self.scheduler.queue_depth or self.scheduler.running:
            self.step()
        self.assert_decoded(*decoded)
        assert_idle(self.scheduler)

    def step_at(self, now_s: float) -> None:
        """Runs a step at the end of which it is so late."""
        with mock.patch.object(module.time, "monotonic", lambda: now_s):
            self.step()

    def error_of(self, request: Request) -> Exception:
        """Gives the error of a request, which must be its only event."""
        [failed] = self.events_of(request)
        assert isinstance(failed, Failed)
        return failed.error

    def events_of(self, request: Request) -> list[Event]:
        return [event for owner, event in self.events if owner is request]

    def assert_decoded(self, *requests: Request) -> None:
        for request in requests:
            assert self.events_of(request) == [expected(request.spec.source, request.options)]

    def run_long(self, *words: int) -> list[Request]:
        """Starts rows that run for some steps."""
        requests = [self.submit(word, shortest=9) for word in words]
        self.step()
        assert self.rows == requests
        return requests

    @property
    def rows(self) -> list[Request | None]:
        return self.worker._rows.requests

    def assert_empty(self) -> None:
        assert (self.scheduler.running, self.scheduler.queue_depth) == (0, 0)
        assert_idle(self.scheduler)


@pytest.fixture
def stepper() -> Stepper:
    return Stepper()


def test_idle_step_has_no_events(stepper: Stepper) -> None:
    stepper.step(2)
    assert (stepper.events, stepper.notes.steps) == ([], [])


def test_sources_of_similar_length_are_encoded_together() -> None:
    stepper = Stepper(slots=5)
    sources = ((5, 6), (7,), (8, 9, 10, 11), (12,), (13,) * 8)
    requests = [stepper.submit(*words) for words in sources]
    stepper.step()
    # From short to long, none more than twice as long as the shortest beside it.
    assert stepper.runtime.encoded == [[2, 2, 3], [5, 9]]
    assert stepper.notes.encodings == [[2, 2, 3], [5, 9]]
    stepper.finish(*requests)


def test_encoding_is_metered_between_steps() -> None:
    stepper = Stepper(budget_tokens=6)
    for word in (5, 6, 7, 8):
        stepper.submit(word, word, longest=10, shortest=10)
    stepper.step(2)
    assert stepper.runtime.encoded == [[3, 3], [3, 3]]
    assert stepper.runtime.rows == [2, 4], "a step lies between"


def test_source_over_the_budget_still_gets_in() -> None:
    stepper = Stepper(budget_tokens=2)
    stepper.submit(5, shortest=9)
    long = stepper.submit(*[6] * 9)
    stepper.step(2)
    assert stepper.runtime.encoded == [[2], [10]]
    stepper.finish(long)


def test_streamed_tokens_are_those_of_the_answer(stepper: Stepper) -> None:
    other = stepper.submit(9, 9, shortest=9)
    request = stepper.submit(5, 6, streamed=True)
    stepper.finish()
    *progress, last = stepper.events_of(request)
    assert last == expected(request.spec.source, request.options)
    words = [word for event in progress if isinstance(event, Progress) for word in event.token_ids]
    assert isinstance(last, Finished)
    # The last token comes with the answer.
    told = last.best.token_ids
    assert words == (told[:-1] if last.best.stop_reason is StopReason.LENGTH else told)
    stepper.assert_decoded(other)


def test_moved_row_keeps_its_deadline(stepper: Stepper) -> None:
    now_s = time.monotonic()
    short = stepper.submit(5, longest=1, deadline_s=now_s + 9000)
    late = stepper.submit(6, 7, shortest=9, deadline_s=now_s + 1000)
    stepper.step()
    stepper.assert_decoded(short)
    stepper.step_at(now_s + 2000)
    assert stepper.error_of(late)
    stepper.assert_empty()


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Source and target row of every move."""
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
    stepper = Stepper(slots=5)
    a, b, c, d, e = stepper.run_long(5, 6, 7, 8, 9)
    for request in (d, a, c):
        stepper.scheduler.cancel(request)
    new, newer = stepper.submit(10, shortest=9), stepper.submit(11, shortest=9)
    stepper.step()
    assert stepper.rows == [new, b, newer, e]
    assert moves == [(4, 3)]
    assert stepper.runtime.rows == [5, 4]
    stepper.finish(b, e, new, newer)


@pytest.mark.parametrize("gone", [[0], [1, 3], [0, 1, 2, 3]])
def test_no_row_moves_if_as_many_join_as_leave(
    gone: list[int], moves: list[tuple[int, int]]
) -> None:
    stepper = Stepper(slots=4)
    requests = stepper.run_long(5, 6, 7, 8)
    for row in gone:
        stepper.scheduler.cancel(requests[row])
    for row in gone:
        requests[row] = stepper.submit(20 + row, shortest=9)
    stepper.step()
    assert stepper.rows == requests
    assert moves == []
    stepper.finish(*requests)


@pytest.mark.parametrize(
    ("gone", "copied"),
    [
        ([3], []),
        ([2, 3], []),
        ([0], [(3, 0)]),
        ([0, 1], [(3, 0), (2, 1)]),
        ([0, 2], [(3, 0)]),
        ([0, 3], [(2, 0)]),
    ],
)
def test_empty_holes_are_closed_by_the_last_rows(
    gone: list[int], copied: list[tuple[int, int]], moves: list[tuple[int, int]]
) -> None:
    stepper = Stepper(slots=4)
    requests = stepper.run_long(5, 6, 7, 8)
    for row in gone:
        stepper.scheduler.cancel(requests[row])
    stepper.step()
    assert moves == copied
    assert stepper.runtime.rows == [4, 4 - len(gone)]
    stepper.finish(*(requests[row] for row in range(4) if row not in gone))


def test_holes_stay_where_a_step_would_be_as_large_without_them(
    moves: list[tuple[int, int]],
) -> None:
    stepper = Stepper(slots=4)
    stepper.runtime.multiple = 2
    first, second, third, fourth = stepper.run_long(5, 6, 7, 8)
    stepper.scheduler.cancel(second)
    stepper.step(3)
    assert (stepper.rows, moves) == ([first, None, third, fourth], [])
    new = stepper.submit(9, shortest=9)
    stepper.step()
    assert (stepper.rows, moves) == ([first, new, third, fourth], [])
    for request in (first, third):
        stepper.scheduler.cancel(request)
    stepper.step()
    assert (stepper.rows, moves) == ([fourth, new], [(3, 0)])
    stepper.finish(new, fourth)


def test_a_hole_may_stay_for_longer_than_any_row() -> None:
    stepper = Stepper(slots=3)
    stepper.runtime.multiple = 3
    requests = stepper.run_long(5, 6, 7)
    stepper.scheduler.cancel(requests.pop())
    for word in range(8, 8 + MAX_TARGET):
        requests.append(stepper.submit(word, longest=3, shortest=2))
        stepper.step(3)
        assert len(stepper.rows) == 3 and stepper.rows[2] is None
    stepper.finish(*requests)


def test_rows_that_ended_and_those_cancelled_since_leave_together(
    moves: list[tuple[int, int]],
) -> None:
    stepper = Stepper(slots=4)
    cancelled = stepper.submit(5, shortest=9)
    short = stepper.submit(6, longest=1, shortest=1)
    others = [stepper.submit(word, shortest=9) for word in (7, 8)]
    stepper.step()
    stepper.scheduler.cancel(cancelled)
    new = stepper.submit(9, shortest=9)
    stepper.step()
    assert stepper.rows == [new, others[1], others[0]]
    assert moves == [(3, 1)]
    stepper.finish(short, new, *others)


def test_no_step_runs_over_a_dead_row() -> None:
    stepper = Stepper(slots=4)
    requests: list[Request] = []

    def look() -> None:
        assert all(stepper.rows), "a row is dead"
        assert stepper.runtime.rows[-1] == len(stepper.rows) == stepper.scheduler.running

    stepper.runtime.before_step = look
    for number in range(30):
        longest, source = 1 + number % 7, range(5, 6 + number % 5)
        requests.append(stepper.submit(*source, longest=longest, scored=number % 3 == 0))
        stepper.step(number % 3)
    stepper.finish(*requests)


def test_scores_are_computed_only_while_a_row_needs_them(stepper: Stepper) -> None:
    plain = stepper.submit(5, 6, shortest=9, scored=False)
    stepper.step()
    asking = [stepper.submit(7, longest=length, shortest=length) for length in (2, 3)]
    stepper.step(4)
    assert stepper.runtime.returned_logprobs == [False, True, True, True, False]
    stepper.finish(plain, *asking)
    assert stepper.events_of(plain)[0].best.score is None  # type: ignore[union-attr]


def test_timeline_is_ascending(stepper: Stepper) -> None:
    request = stepper.submit(5, 6, shortest=3)
    stepper.finish()
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
    assert stepper.notes.first == [request]


def test_cancelled_row_leaves_before_the_next_step_without_an_event(stepper: Stepper) -> None:
    requests = [stepper.submit(5, word, shortest=9) for word in (5, 6, 7)]
    stepper.step()
    stepper.scheduler.cancel(requests[0])
    stepper.step()
    assert stepper.runtime.rows == [3, 2]
    assert stepper.notes.cancellations == [requests[0]]
    stepper.finish()
    assert stepper.events_of(requests[0]) == []
    stepper.assert_decoded(*requests[1:])
    stepper.assert_empty()


def test_request_cancelled_while_it_is_encoded_leaves_too(stepper: Stepper) -> None:
    request = stepper.submit(5, shortest=9)
    stepper.runtime.before_encode = lambda: stepper.scheduler.cancel(request) and None
    stepper.step(2)
    stepper.assert_empty()
    assert stepper.events_of(request) == []
    assert stepper.notes.cancellations == [request]


def test_freed_slot_is_taken_in_the_same_step() -> None:
    stepper = Stepper(slots=1)
    first, second = stepper.submit(5, shortest=9), stepper.submit(6, shortest=9)
    stepper.step()
    stepper.scheduler.cancel(first)
    stepper.step()
    assert stepper.rows == [second]
    stepper.finish(second)


def test_waiting_sources_are_encoded_with_the_one_that_has_a_slot() -> None:
    stepper = Stepper(slots=1)
    requests = [stepper.submit(word, longest=2) for word in (5, 6, 7)]
    stepper.finish()
    assert stepper.runtime.encoded == [[2, 2, 2]]
    assert stepper.notes.encodings == [[2, 2, 2]]
    stepper.assert_decoded(*requests)
    stepper.assert_empty()


def test_a_request_that_waits_encoded_can_be_cancelled() -> None:
    stepper = Stepper(slots=1)
    first, second, third = (stepper.submit(word, longest=2) for word in (5, 6, 7))
    stepper.step()
    assert stepper.scheduler.cancel(second)
    stepper.finish(first, third)
    assert stepper.events_of(second) == []
    stepper.assert_empty()


def test_a_waiting_source_that_cannot_be_encoded_fails_alone_once_it_has_a_slot() -> None:
    stepper = Stepper(slots=1)
    first, broken, third = (stepper.submit(word, longest=2) for word in (5, VOCABULARY_SIZE, 7))
    stepper.finish(first, third)
    assert isinstance(stepper.error_of(broken), EngineFault)
    stepper.assert_empty()


def test_one_new_source_waits_some_steps_for_others_where_many_rows_run() -> None:
    stepper = Stepper(slots=32)
    stepper.run_long(*range(5, 21))
    before = len(stepper.runtime.encoded)
    one = stepper.submit(5, shortest=9)
    stepper.step()
    two = stepper.submit(6, shortest=9)
    stepper.step(2)
    assert stepper.runtime.encoded[before:] == [[2, 2]]
    stepper.finish(one, two)


def test_a_new_source_does_not_wait_for_others_where_few_rows_run(stepper: Stepper) -> None:
    stepper.run_long(5)
    one = stepper.submit(6, shortest=9)
    stepper.step()
    assert one in stepper.rows


def test_deadline_while_decoding_frees_the_slot_of_that_row_only(stepper: Stepper) -> None:
    now_s = time.monotonic()
    others = [stepper.submit(5, 6), stepper.submit(7, 8)]
    late = stepper.submit(9, shortest=9, deadline_s=now_s + 1000)
    more = stepper.submit(10, 11, deadline_s=now_s + 9000)
    stepper.step()
    stepper.step_at(now_s + 2000)
    error = stepper.error_of(late)
    assert isinstance(error, DeadlinePassed) and error.where is Stage.DECODE
    stepper.finish(*others, more)


def test_row_both_cancelled_and_late_leaves_once(stepper: Stepper) -> None:
    now_s = time.monotonic()
    request = stepper.submit(5, shortest=9, deadline_s=now_s + 1000)
    other = stepper.submit(6, shortest=9)
    stepper.step()
    stepper.scheduler.cancel(request)
    stepper.step_at(now_s + 2000)
    assert stepper.events_of(request) == []
    stepper.finish(other)


def test_tokens_done_are_counted_for_requests_that_leave_early(stepper: Stepper) -> None:
    now_s = time.monotonic()
    gone, late = (
        stepper.submit(5, shortest=9),
        stepper.submit(6, shortest=9, deadline_s=now_s + 1000),
    )
    other = stepper.submit(7, shortest=9)
    stepper.step(3)
    stepper.scheduler.cancel(gone)
    waiting = stepper.submit(8, deadline_s=now_s + 1000)
    stepper.step_at(now_s + 2000)
    assert (gone.tokens_done, late.tokens_done, waiting.tokens_done) == (3, 3, 0)
    stepper.finish()
    [answer] = stepper.events_of(other)
    assert isinstance(answer, Finished)
    assert other.tokens_done == len(answer.best.token_ids)


def test_source_that_cannot_be_encoded_leaves_no_hole(
    stepper: Stepper, moves: list[tuple[int, int]]
) -> None:
    running = stepper.run_long(5, 6, 7)
    stepper.scheduler.cancel(running[0])
    stepper.scheduler.cancel(running[1])
    # The shorter one fails first, and the longer one takes its row.
    broken, fine = stepper.submit(VOCABULARY_SIZE), stepper.submit(8, 9, shortest=9)
    stepper.step()
    assert stepper.rows == [fine, running[2]]
    assert moves == [(2, 1)]
    assert isinstance(stepper.error_of(broken), EngineFault)
    stepper.finish(fine, running[2])


def test_rows_run_on_if_all_sources_of_a_step_fail(stepper: Stepper) -> None:
    running = stepper.run_long(5, 6, 7)
    stepper.scheduler.cancel(running[1])
    broken = [stepper.submit(VOCABULARY_SIZE), stepper.submit(5, VOCABULARY_SIZE)]
    stepper.step()
    assert stepper.rows == [running[0], running[2]]
    assert all(isinstance(stepper.events_of(request)[0], Failed) for request in broken)
    stepper.finish(running[0], running[2])


def test_fault_while_a_row_joins_a_hole_loses_no_request(
    stepper: Stepper, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = stepper.run_long(5, 6, 7)
    stepper.scheduler.cancel(running[0])
    joining = [stepper.submit(8, shortest=9), stepper.submit(9, 9, shortest=9)]
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(stepper.worker._cache, "join", lambda *given: fault())
        stepper.step()
    stepper.events += stepper.worker.fail(EngineFault("a row could not join"))
    for request in (*running[1:], *joining):
        assert stepper.error_of(request)
    assert stepper.events_of(running[0]) == []
    stepper.assert_empty()
    after = [stepper.submit(10, scored=False), stepper.submit(11, 12, scored=False)]
    stepper.finish(*after)
    assert not any(stepper.runtime.returned_logprobs[-2:]), "a row that has left still needs scores"


def fault() -> None:
    raise RuntimeError("the step graph broke")


def test_fault_in_a_step_ends_all_rows_and_the_next_requests_run(stepper: Stepper) -> None:
    requests = [stepper.submit(5, 6, streamed=True), stepper.submit(7)]
    stepper.step()
    stepper.events.clear()
    stepper.runtime.before_step = fault
    with pytest.raises(RuntimeError):
        stepper.step()
    stepper.events += stepper.worker.fail(EngineFault("a step failed"))
    for request in requests:
        assert stepper.error_of(request)
    stepper.assert_empty()
    stepper.runtime.before_step = lambda: None
    after = [stepper.submit(5, 6), stepper.submit(8)]
    stepper.finish(*after)


def test_fault_loses_no_earlier_event_of_the_step(stepper: Stepper) -> None:
    stepper.submit(5, shortest=9)
    stepper.step()
    late = stepper.submit(6, deadline_s=time.monotonic())
    stepper.runtime.before_step = fault
    with pytest.raises(RuntimeError):
        stepper.step()
    stepper.events += stepper.worker.fail(EngineFault("a step failed"))
    assert isinstance(stepper.error_of(late), DeadlinePassed)


def test_warm_up_stays_within_the_cache_and_leaves_it_empty() -> None:
    runtime = FakeRuntime(make_manifest(limits=Limits(max_source_length=1, max_target_length=1)))
    worker = Worker(runtime, Scheduler(QueueLimits(max_queue=1)), 9, 100, Notes(), detokenize)
    memory = runtime.encode([[EOS]])
    worker.warm_up(memory)
    assert runtime.rows == [1, 2, 4, 8, 9]
    assert worker._cache.lengths.tolist() == [0] * 9


def test_warm_up_copies_rows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU compiles what it does so with."""
    copies: list[str] = []
    for name in ("move", "branch"):
        monkeypatch.setattr(SlotCache, name, lambda *_, name=name: copies.append(name))
    runtime = FakeRuntime()
    worker = Worker(runtime, Scheduler(QueueLimits(max_queue=1)), 2, 100, Notes(), detokenize)
    worker.warm_up(runtime.encode([[EOS]]))
    assert sorted(copies) == ["branch", "move"]


def test_warm_up_runs_rows_that_choose_from_candidates_and_leaves_none() -> None:
    runtime = FakeRuntime()
    worker = Worker(runtime, Scheduler(QueueLimits(max_queue=1)), 2, 100, Notes(), detokenize)
    worker.warm_up(runtime.encode([[EOS]]), np.array([EOS, 7]))
    assert runtime.rows == [1, 2]
    assert runtime.inputs["allowed_tokens"].reshape(-1)[:2].tolist() == [EOS, 7]
    assert_idle(worker._cache)


class DraftStepper(Stepper):
    """A stepper whose model reads drafts, and the targets of sources without one."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.runtime.draft_reader = self.reader = FakeDraftReader()
        self.runtime.manifest = make_manifest(
            limits=Limits(max_source_length=MAX_SOURCE, max_target_length=60)
        )
        self.worker = Worker(
            self.runtime, self.scheduler, 4, 100, self.notes, detokenize, idle_s=0.0
        )

    @staticmethod
    def target(*source: int, longest: int = 40) -> tuple[int, ...]:
        options = DecodingOptions(max_decoding_length=longest)
        best = expected([*source, EOS], options).best
        return (*best.token_ids, *([EOS] if best.stop_reason is StopReason.EOS else []))


LONG = (43, 21)
"""A source whose target has 19 tokens, all of them different."""


@pytest.fixture
def drafting() -> DraftStepper:
    return DraftStepper()


@pytest.mark.parametrize("scored", [True, False])
def test_right_draft_takes_few_steps(scored: bool) -> None:
    stepper = DraftStepper()
    target = stepper.target(*LONG)
    request = stepper.submit(*LONG, longest=40, scored=scored, draft=target)
    stepper.finish(request)
    assert_idle(stepper.worker)
    assert stepper.reader.passes[0] == 8
    assert len(stepper.notes.steps) == 2
    assert all(drafted == accepted for drafted, accepted in stepper.notes.drafted_tokens)


def test_draft_goes_on_after_a_mismatch(drafting: DraftStepper) -> None:
    stepper, target = drafting, drafting.target(*LONG)
    for draft in (
        (*target[:4], 49, *target[5:]),
        (*target[:4], *target[5:]),
        (*target[:4], 49, *target[4:]),
    ):
        stepper.notes.steps.clear()
        request = stepper.submit(*LONG, longest=40, draft=draft)
        stepper.finish()
        stepper.assert_decoded(request)
        assert len(stepper.notes.steps) < len(target) - 6
    assert any(accepted < drafted for drafted, accepted in stepper.notes.drafted_tokens)


def test_stream_brings_the_tokens_of_a_pass_together(drafting: DraftStepper) -> None:
    stepper, target = drafting, drafting.target(*LONG)
    request = stepper.submit(*LONG, longest=40, draft=target, streamed=True)
    stepper.finish()
    *progress, last = stepper.events_of(request)
    assert last == expected([*LONG, EOS], request.options)
    pieces = [event.token_ids for event in progress if isinstance(event, Progress)]
    assert [len(piece) for piece in pieces] == [1, 8, 1, 9]
    assert [token for piece in pieces for token in piece] == list(target[:-1])


@pytest.mark.parametrize("longest", range(1, 14))
def test_draft_stops_at_the_maximum_length(longest: int) -> None:
    stepper = DraftStepper()
    draft = stepper.target(*LONG)
    request = stepper.submit(*LONG, longest=longest, draft=(*draft, *draft))
    stepper.finish(request)


def test_drafts_wait_while_many_rows_run(drafting: DraftStepper) -> None:
    stepper, target = drafting, drafting.target(*LONG)
    requests = [stepper.submit(*LONG, longest=12, draft=target) for _ in range(3)]
    stepper.finish(*requests)
    assert stepper.reader.passes == []


def test_drafts_of_other_kinds_of_requests_are_ignored(drafting: DraftStepper) -> None:
    stepper, target = drafting, drafting.target(*LONG)
    for changes in (
        {"min_decoding_length": 3},
        {"vocabulary": (EOS, *range(4, VOCABULARY_SIZE))},
        {"no_repeat_ngram_size": 3},
    ):
        options = DecodingOptions(max_decoding_length=12, **changes)
        stepper.scheduler.submit(generation([*LONG, EOS], options, draft=target))
        stepper.finish()
    assert stepper.reader.passes == []


def test_cancelled_request_takes_its_draft_along() -> None:
    stepper = DraftStepper()
    request = stepper.submit(*LONG, longest=40, draft=stepper.target(*LONG))
    stepper.step()
    stepper.scheduler.cancel(request)
    stepper.finish()
    assert_idle(stepper.worker)
