import time

import numpy as np
import pytest
from tests.unit.server.engine.fake_runtime import (
    EOS,
    MAX_SOURCE,
    MAX_TARGET,
    VOCABULARY_SIZE,
    FakeDraftReader,
    FakeRuntime,
    expected,
    make_manifest,
)
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import generation
from tests.unit.server.engine.stepper import Stepper

from seqserve_server.artifact.manifest import Limits
from seqserve_server.contract.errors import DeadlinePassed, EngineFault, Stage
from seqserve_server.contract.events import Finished, Progress, StopReason
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.request import Request


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
    assert stepper.runtime.encoded == stepper.notes.encodings == [[2, 2, 3], [5, 9]]
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


@pytest.mark.parametrize(
    ("rows", "gone", "joining", "after", "moved"),
    [
        (4, [0], 1, [4, 1, 2, 3], []),
        (4, [1, 3], 2, [0, 4, 2, 5], []),
        (4, [0, 1, 2, 3], 4, [4, 5, 6, 7], []),
        (5, [3, 0, 2], 2, [5, 1, 6, 4], [(4, 3)]),
        (4, [3], 0, [0, 1, 2], []),
        (4, [2, 3], 0, [0, 1], []),
        (4, [0], 0, [3, 1, 2], [(3, 0)]),
        (4, [0, 1], 0, [3, 2], [(3, 0), (2, 1)]),
        (4, [0, 2], 0, [3, 1], [(3, 0)]),
        (4, [0, 3], 0, [2, 1], [(2, 0)]),
    ],
)
def test_holes_are_filled_by_those_that_join_from_the_lowest_and_only_the_rest_by_moving(
    moves: list[tuple[int, int]],
    rows: int,
    gone: list[int],
    joining: int,
    after: list[int],
    moved: list[tuple[int, int]],
) -> None:
    stepper = Stepper(slots=5)
    requests = stepper.run_long(*range(5, 5 + rows))
    for row in gone:
        stepper.scheduler.cancel(requests[row])
    requests += [stepper.submit(20 + number, shortest=9) for number in range(joining)]
    stepper.step()
    left = [requests[number] for number in after]
    assert (stepper.rows, moves) == (left, moved)
    assert stepper.runtime.rows == [rows, len(left)]
    stepper.finish(*left)


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


def test_cancelled_row_leaves_before_the_next_step_without_an_event(stepper: Stepper) -> None:
    requests = [stepper.submit(5, word, shortest=9) for word in (5, 6, 7)]
    stepper.step()
    stepper.scheduler.cancel(requests[0])
    stepper.step()
    assert stepper.runtime.rows == [3, 2]
    assert stepper.notes.cancellations == [requests[0]]
    assert stepper.notes.first == requests
    stepper.finish(*requests[1:])
    assert stepper.events_of(requests[0]) == []


def test_request_cancelled_while_it_is_encoded_leaves_too(stepper: Stepper) -> None:
    request = stepper.submit(5, shortest=9)
    stepper.runtime.before_encode = lambda: stepper.scheduler.cancel(request) and None
    stepper.step(2)
    assert_idle(stepper.scheduler)
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
    stepper.finish(*requests)
    assert stepper.runtime.encoded == stepper.notes.encodings == [[2, 2, 2]]


def test_a_request_that_waits_encoded_can_be_cancelled() -> None:
    stepper = Stepper(slots=1)
    first, second, third = (stepper.submit(word, longest=2) for word in (5, 6, 7))
    stepper.step()
    assert stepper.scheduler.cancel(second)
    stepper.finish(first, third)
    assert stepper.events_of(second) == []


def test_a_waiting_source_that_cannot_be_encoded_fails_alone_once_it_has_a_slot() -> None:
    stepper = Stepper(slots=1)
    first, broken, third = (stepper.submit(word, longest=2) for word in (5, VOCABULARY_SIZE, 7))
    stepper.finish(first, third)
    assert isinstance(stepper.error_of(broken), EngineFault)


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


def test_deadline_while_decoding_frees_the_slot_of_that_row_only() -> None:
    """Of a row that has moved since, too."""
    stepper = Stepper(slots=5)
    now_s = time.monotonic()
    short = stepper.submit(5, longest=1, deadline_s=now_s + 9000)
    other = stepper.submit(7, 8)
    late = stepper.submit(9, shortest=9, deadline_s=now_s + 1000)
    more = stepper.submit(10, 11, shortest=9, deadline_s=now_s + 9000)
    moved = stepper.submit(12, shortest=9, deadline_s=now_s + 1000)
    stepper.step()
    stepper.step_at(now_s + 2000)
    for request in (late, moved):
        error = stepper.error_of(request)
        assert isinstance(error, DeadlinePassed) and error.where is Stage.DECODE
    stepper.finish(short, other, more)


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


def test_fault_while_a_row_joins_a_hole_loses_no_request(
    stepper: Stepper, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = stepper.run_long(5, 6, 7)
    stepper.scheduler.cancel(running[0])
    joining = [stepper.submit(8, shortest=9), stepper.submit(9, 9, shortest=9)]
    with monkeypatch.context() as patch:
        patch.setattr(stepper.worker._cache, "join", lambda *given: fault())
        stepper.fail()
    for request in (*running[1:], *joining):
        assert stepper.error_of(request)
    assert stepper.events_of(running[0]) == []
    assert_idle(stepper.scheduler)
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
    stepper.fail()
    for request in requests:
        assert stepper.error_of(request)
    assert_idle(stepper.scheduler)
    stepper.runtime.before_step = lambda: None
    after = [stepper.submit(5, 6), stepper.submit(8)]
    stepper.finish(*after)


def test_fault_loses_no_earlier_event_of_the_step(stepper: Stepper) -> None:
    stepper.submit(5, shortest=9)
    stepper.step()
    late = stepper.submit(6, deadline_s=time.monotonic())
    stepper.runtime.before_step = fault
    stepper.fail()
    assert isinstance(stepper.error_of(late), DeadlinePassed)


def warm_up(stepper: Stepper, *candidates: int) -> None:
    shortlist = np.array(candidates) if candidates else None
    stepper.worker.warm_up(stepper.runtime.encode([[EOS]]), shortlist)
    assert_idle(stepper.worker)


def test_warm_up_stays_within_the_cache_and_leaves_it_empty() -> None:
    manifest = make_manifest(limits=Limits(max_source_length=1, max_target_length=1))
    stepper = Stepper(slots=9, runtime=FakeRuntime(manifest))
    warm_up(stepper)
    assert stepper.runtime.rows == [1, 2, 4, 8, 9]
    assert stepper.worker._cache.lengths.tolist() == [0] * 9


def test_warm_up_copies_rows_too(stepper: Stepper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU compiles what it does so with."""
    copies: list[str] = []
    for name in ("move", "branch"):
        monkeypatch.setattr(SlotCache, name, lambda *_, name=name: copies.append(name))
    warm_up(stepper)
    assert sorted(copies) == ["branch", "move"]


def test_warm_up_runs_rows_that_choose_from_candidates_and_leaves_none(stepper: Stepper) -> None:
    warm_up(stepper, EOS, 7)
    assert stepper.runtime.rows == [1, 2, 4]
    assert stepper.runtime.inputs["allowed_tokens"].reshape(-1)[:2].tolist() == [EOS, 7]


class DraftStepper(Stepper):
    """A stepper whose model reads drafts, and the targets of sources without one."""

    def __init__(self) -> None:
        limits = Limits(max_source_length=MAX_SOURCE, max_target_length=60)
        runtime = FakeRuntime(make_manifest(limits=limits))
        runtime.draft_reader = self.reader = FakeDraftReader()
        super().__init__(runtime=runtime)

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
def test_right_draft_takes_few_steps(drafting: DraftStepper, scored: bool) -> None:
    target = drafting.target(*LONG)
    drafting.finish(drafting.submit(*LONG, longest=40, scored=scored, draft=target))
    assert_idle(drafting.worker)
    assert drafting.reader.passes[0] == 8
    assert len(drafting.notes.steps) == 2
    assert all(drafted == accepted for drafted, accepted in drafting.notes.drafted_tokens)


def test_draft_goes_on_after_a_mismatch(drafting: DraftStepper) -> None:
    target = drafting.target(*LONG)
    for draft in (
        (*target[:4], 49, *target[5:]),
        (*target[:4], *target[5:]),
        (*target[:4], 49, *target[4:]),
    ):
        drafting.notes.steps.clear()
        request = drafting.submit(*LONG, longest=40, draft=draft)
        drafting.finish()
        drafting.assert_decoded(request)
        assert len(drafting.notes.steps) < len(target) - 6
    assert any(accepted < drafted for drafted, accepted in drafting.notes.drafted_tokens)


def test_stream_brings_the_tokens_of_a_pass_together(drafting: DraftStepper) -> None:
    target = drafting.target(*LONG)
    request = drafting.submit(*LONG, longest=40, draft=target, streamed=True)
    drafting.finish()
    *progress, last = drafting.events_of(request)
    assert last == expected([*LONG, EOS], request.options)
    pieces = [event.token_ids for event in progress if isinstance(event, Progress)]
    assert [len(piece) for piece in pieces] == [1, 8, 1, 9]
    assert [token for piece in pieces for token in piece] == list(target[:-1])


@pytest.mark.parametrize("longest", range(1, 14))
def test_draft_stops_at_the_maximum_length(drafting: DraftStepper, longest: int) -> None:
    draft = drafting.target(*LONG)
    drafting.finish(drafting.submit(*LONG, longest=longest, draft=(*draft, *draft)))


def test_drafts_wait_while_many_rows_run(drafting: DraftStepper) -> None:
    target = drafting.target(*LONG)
    requests = [drafting.submit(*LONG, longest=12, draft=target) for _ in range(3)]
    drafting.finish(*requests)
    assert drafting.reader.passes == []


def test_drafts_of_other_kinds_of_requests_are_ignored(drafting: DraftStepper) -> None:
    target = drafting.target(*LONG)
    for changes in (
        {"min_decoding_length": 3},
        {"vocabulary": (EOS, *range(4, VOCABULARY_SIZE))},
        {"no_repeat_ngram_size": 3},
    ):
        options = DecodingOptions(max_decoding_length=12, **changes)
        drafting.scheduler.submit(generation([*LONG, EOS], options, draft=target))
        drafting.finish()
    assert drafting.reader.passes == []


def test_cancelled_request_takes_its_draft_along(drafting: DraftStepper) -> None:
    request = drafting.submit(*LONG, longest=40, draft=drafting.target(*LONG))
    drafting.step()
    drafting.scheduler.cancel(request)
    drafting.finish()
    assert_idle(drafting.worker)
