import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Semaphore
from typing import Any

import pytest
from tests.unit.server.engine.fake_runtime import EOS, PATIENCE_S, HeldRuntime, detokenize, expected
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import KeptRequest, keep
from tests.unit.server.engine.stepper import Notes

from seqserve_server.contract.errors import (
    Bound,
    Draining,
    EngineFault,
    NoScorer,
    QueueFull,
)
from seqserve_server.contract.events import Event, Finished, TargetScored
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Priority, ScoreSpec, Spec
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.request import Events, Request
from seqserve_server.engine.shortlist import Shortlist


class Harness:
    """An engine over a fake runtime whose steps and whose scorer can be blocked."""

    def __init__(
        self,
        workers: int = 2,
        slots: int = 4,
        max_queue: int = 100,
        caller_share: float = 1.0,
        **more: Any,
    ) -> None:
        self.runtime = HeldRuntime()
        self.may_score, self.scoring = self.runtime.may_score, self.runtime.scoring
        self.observer = Notes()
        limits = EngineLimits(
            workers=workers,
            slots=slots,
            max_queue=max_queue,
            max_source_tokens_per_step=20,
            caller_share=caller_share,
        )
        self.engine = Engine(self.runtime, limits, self._deliver, self.observer, detokenize, **more)
        self.broken = 0

    def _deliver(self, events: Events) -> None:
        keep(events)
        if self.broken:
            self.broken -= 1
            raise RuntimeError("the event loop is closed")

    def wait_idle(self) -> None:
        """Waits until no request waits or runs, and checks that nothing is kept of any."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.engine.slots_in_use or self.engine.queue_depth:
            assert time.monotonic() < deadline_s, "a slot is not given back"
            time.sleep(0.001)
        assert_idle(self.engine)

    def submit(self, *source: int, shortest: int = 0, **more: Any) -> KeptRequest:
        """Submits a request to generate; ``more`` are fields of its spec."""
        options = DecodingOptions(max_decoding_length=10, min_decoding_length=shortest)
        return self._submit(GenerateSpec(source=[*source, EOS], options=options, **more))

    def assert_answered(self, *source: int) -> None:
        request = self.submit(*source)
        assert request.last == answer_of(request)

    def score(self, *source: int, **more: Any) -> KeptRequest:
        return self._submit(ScoreSpec(source=[*source, EOS], target=[6, EOS], **more))

    def attend(self, *source: int, **more: Any) -> KeptRequest:
        """Submits a request for the attention of a finished answer."""
        options = DecodingOptions(max_decoding_length=10, return_attention=True)
        words = [*source, EOS]
        answer = expected(words, options)
        return self._submit(GenerateSpec(source=words, options=options, answer=answer, **more))

    def _submit(self, spec: Spec) -> KeptRequest:
        request = KeptRequest(spec)
        self.engine.submit(request)
        return request

    def hold_scorer(self, submit: Callable[[int], KeptRequest]) -> KeptRequest:
        """Starts the engine; its scorer has a request until ``may_score`` is set."""
        self.may_score.clear()
        self.engine.start()
        request = submit(5)
        assert self.scoring.wait(PATIENCE_S)
        return request

    def assert_counted(self, *requests: KeptRequest) -> None:
        """Checks that the observer got each end that the caller got, once."""
        ends = [(request, request.last) for request in requests]
        assert sorted(self.observer.ends, key=_id) == sorted(ends, key=_id)


def answer_of(request: Request) -> Finished:
    return expected(request.spec.source, request.options)


def failing(reason: str) -> Callable[[], None]:
    def fail() -> None:
        raise RuntimeError(reason)

    return fail


def _id(end: tuple[Request, Event]) -> int:
    return id(end[0])


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.runtime.let_go()
    harness.engine.stop()


@pytest.mark.parametrize("is_bulk", [True, False])
def test_answers_of_a_batch_wait_for_each_other_while_its_sources_wait(is_bulk: bool) -> None:
    harness, may_step, at_step = Harness(workers=1, slots=16), Semaphore(0), Semaphore(0)

    def step() -> None:
        at_step.release()
        assert may_step.acquire(timeout=PATIENCE_S)

    harness.runtime.before_step = step
    requests = [harness.submit(5, number, is_bulk=is_bulk) for number in range(10, 34)]
    harness.engine.start()
    assert at_step.acquire(timeout=PATIENCE_S)
    while not harness.observer.ends:
        may_step.release()
        assert at_step.acquire(timeout=PATIENCE_S)
    ended = [each for each in requests if any(each is one for one, _ in harness.observer.ends)]
    assert len(ended) < 4
    assert [len(each.events) for each in ended] == [0 if is_bulk else 1] * len(ended)
    # There may be no other event after theirs.
    harness.engine.cancel(requests.pop())
    assert [each.events for each in ended] == [[answer_of(each)] for each in ended]
    may_step.release(1000)
    assert [each.last for each in requests] == [answer_of(each) for each in requests]
    harness.engine.stop()


def test_slots_are_spread_over_workers() -> None:
    engine = Harness(workers=3, slots=4).engine
    assert engine.slots == 6
    assert engine.cache_bytes == 2 * Harness(workers=3, slots=3).engine.cache_bytes


@pytest.mark.parametrize(
    "reason",
    # The second is what ONNX Runtime says where the memory of a GPU is full.
    ["broken", "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer"],
)
def test_fault_in_a_step_fails_its_requests_and_the_worker_goes_on(
    harness: Harness, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    harness.runtime.before_step = failing(reason)
    harness.engine.start()
    failed = harness.submit(5)
    assert isinstance(failed.error, EngineFault)
    assert "a step failed" in caplog.text and reason in caplog.text
    harness.runtime.before_step = lambda: None
    for word in (6, 7, 8):
        harness.assert_answered(word)


def test_worker_goes_on_if_events_cannot_be_delivered(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.broken = 2
    harness.engine.start()
    for word in (5, 6, 7, 8):
        harness.assert_answered(word)
    assert "could not be delivered" in caplog.text


def test_stop_fails_running_and_waiting_requests() -> None:
    harness = Harness(workers=1, slots=1)
    harness.runtime.may_step.clear()
    harness.engine.start()
    requests = [harness.submit(word, shortest=10) for word in (5, 6, 7)]
    assert harness.runtime.stepping.wait(PATIENCE_S)
    stopping = threading.Thread(target=harness.engine.stop)
    stopping.start()
    with pytest.raises(Draining):
        while True:
            requests.append(harness.submit(8, shortest=10))
    harness.runtime.may_step.set()
    stopping.join(PATIENCE_S)
    for request in requests:
        assert isinstance(request.error, EngineFault)
        assert len(request.events) == 1
    assert (harness.engine.slots_in_use, harness.engine.queue_depth) == (0, 0)


def test_stop_twice_or_before_the_start_is_fine(harness: Harness) -> None:
    request = harness.submit(5)
    harness.engine.stop()
    harness.engine.stop()
    assert request.error
    assert len(request.events) == 1
    with pytest.raises(Draining):
        harness.submit(5)


def until_beating(engine: Engine, threads: int) -> list[bool]:
    """Waits until this number of threads has made progress; returns which."""
    before, deadline_s = engine.heartbeats, time.monotonic() + PATIENCE_S
    while True:
        beating = [now > then for now, then in zip(engine.heartbeats, before, strict=True)]
        if sum(beating) == threads:
            return beating
        assert time.monotonic() < deadline_s, f"only these do: {beating}"
        time.sleep(0.01)


def test_every_thread_beats_except_one_that_hangs(harness: Harness) -> None:
    harness.engine.start()
    assert until_beating(harness.engine, 3) == [True] * 3
    harness.runtime.may_step.clear()
    harness.submit(5)
    assert harness.runtime.stepping.wait(PATIENCE_S)
    # The other worker, and the scorer.
    going_on = until_beating(harness.engine, 2)
    assert until_beating(harness.engine, 2) == going_on


def test_attention_of_answers_is_not_refused_when_the_queue_is_full() -> None:
    harness = Harness(max_queue=1)
    running = harness.hold_scorer(harness.score)
    waiting = harness.score(5)
    with pytest.raises(QueueFull):
        harness.score(5)
    answers = [harness.attend(5) for _ in range(4)]
    assert harness.engine.queue_depth == 5
    harness.may_score.set()
    for request in answers:
        [found] = request.result.hypotheses
        assert found.attention and found._replace(attention=b"") == answer_of(request).best
    assert isinstance(waiting.last, TargetScored)
    harness.wait_idle()
    harness.assert_counted(running, waiting, *answers)
    harness.engine.stop()


def test_answers_that_wait_for_their_attention_are_bounded() -> None:
    """More may be decoded than scored; refusing the second request would lose the answer."""
    harness = Harness(max_queue=9)
    harness.hold_scorer(harness.attend)
    waiting = [harness.attend(5) for _ in range(harness.engine.slots)]
    options = DecodingOptions(max_decoding_length=9, return_attention=True)
    with pytest.raises(QueueFull, match=f"{len(waiting)} answers wait for their attention") as full:
        harness.engine.submit(KeptRequest(GenerateSpec(source=[5, EOS], options=options)))
    assert full.value.bound is Bound.ATTENTION and full.value.retry_after_s > 0
    assert isinstance(harness.submit(6).last, Finished), "a request without attention is refused"
    harness.may_score.set()
    assert all(request.result.best.attention for request in waiting)
    harness.wait_idle()
    assert harness.attend(7).result.best.attention
    harness.engine.stop()


def test_waiting_request_for_attention_can_be_cancelled(harness: Harness) -> None:
    running = harness.hold_scorer(harness.attend)
    waiting = [harness.attend(5) for _ in range(3)]
    for request in waiting:
        harness.engine.cancel(request)
        harness.engine.cancel(request)
    assert harness.engine.queue_depth == 0
    harness.may_score.set()
    harness.assert_counted(running)
    harness.wait_idle()
    assert harness.observer.cancellations == waiting
    assert not any(request.events for request in waiting)
    assert all(request.tokens_done for request in waiting), "they were decoded before"


@pytest.mark.parametrize("attends", [False, True])
def test_fault_of_the_scorer_fails_one_request_and_the_next_one_runs(
    harness: Harness, attends: bool
) -> None:
    harness.runtime.before_score = failing("broken")
    harness.engine.start()
    submit = harness.attend if attends else harness.score
    failed = submit(5)
    assert isinstance(failed.error, EngineFault)
    harness.runtime.before_score = lambda: None
    sound = submit(5)
    assert isinstance(sound.last, Finished if attends else TargetScored)
    harness.wait_idle()
    harness.assert_counted(failed, sound)


def test_stop_fails_requests_that_wait_for_the_scorer() -> None:
    harness = Harness()
    running = harness.hold_scorer(harness.score)
    left = [harness.score(5), harness.attend(6)]
    assert harness.engine.queue_depth == 2
    stopping = threading.Thread(target=harness.engine.stop)
    stopping.start()
    with pytest.raises(Draining):
        while True:
            left.append(harness.attend(6))
    harness.may_score.set()
    stopping.join(PATIENCE_S)
    # The request under way is finished.
    assert isinstance(running.last, TargetScored)
    for request in left:
        assert request.error
        assert len(request.events) == 1
    assert (harness.engine.slots_in_use, harness.engine.queue_depth) == (0, 0)
    harness.assert_counted(running, *left)


def test_requests_that_wait_for_the_scorer_show_in_the_queue_depth(harness: Harness) -> None:
    harness.may_score.clear()
    harness.engine.start()
    requests = [harness.score(5)]
    assert harness.scoring.wait(PATIENCE_S)
    for priority in Priority:
        requests.append(harness.score(5, priority=priority))
        requests.append(harness.attend(5, priority=priority))
    assert (harness.engine.queue_depth, harness.engine.low_queue_depth) == (4, 2)
    harness.may_score.set()
    harness.assert_counted(*requests)
    harness.wait_idle()


def test_model_without_a_scorer_refuses_requests_that_need_one(harness: Harness) -> None:
    harness.runtime.can_score = False
    harness.engine.warm_up()
    harness.engine.start()
    attending = DecodingOptions(max_decoding_length=9, return_attention=True)
    refusal = r"fake/1 has no scorer\.onnx.*export it again"
    with pytest.raises(NoScorer, match=refusal):
        harness.score(5)
    with pytest.raises(NoScorer, match=refusal):
        harness.engine.submit(Request(GenerateSpec(source=[5, EOS], options=attending)))
    harness.assert_answered(5)
    assert harness.runtime.scored == []


def test_warm_up_runs_rows_with_the_shortlist_and_the_scorer_too(harness: Harness) -> None:
    harness.runtime.shortlist = Shortlist.of([7, 9], {EOS: [8]})
    harness.engine.warm_up()
    chosen = harness.runtime.inputs["allowed_tokens"].reshape(-1)[:4]
    assert chosen.tolist() == sorted([EOS, 7, 8, 9])
    assert harness.runtime.scored == [1]


def test_each_worker_warms_up_in_the_thread_in_which_it_steps(harness: Harness) -> None:
    """CUDA graphs are played back in the thread that recorded them."""
    threads: list[str] = []
    harness.runtime.before_step = lambda: threads.append(threading.current_thread().name)
    harness.engine.warm_up()
    assert set(threads) == {"step-0", "step-1"}
    threads.clear()
    harness.engine.start()
    harness.assert_answered(5)
    assert set(threads) <= {"step-0", "step-1"}


def test_an_engine_that_cannot_warm_up_says_why_and_ends_its_threads(harness: Harness) -> None:
    before = set(threading.enumerate())
    harness.runtime.before_step = failing("no kernel")
    with pytest.raises(RuntimeError, match="no kernel"):
        harness.engine.warm_up()
    assert set(threading.enumerate()) - before
    harness.engine.stop()
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize(
    ("submit", "going_on", "begun", "thread"),
    [
        (Harness.submit, "may_step", "stepping", "step-0"),
        (partial(Harness.score, wants_attention=True), "may_score", "scoring", "scorer"),
    ],
    ids=["step", "scorer"],
)
def test_stop_leaves_a_hanging_thread_behind(
    caplog: pytest.LogCaptureFixture,
    submit: Callable[[Harness, int], KeptRequest],
    going_on: str,
    begun: str,
    thread: str,
) -> None:
    harness = Harness(workers=1, slots=1, stop_timeout_s=0.05)
    before = set(threading.enumerate())
    getattr(harness.runtime, going_on).clear()
    running, waiting = submit(harness, 5), submit(harness, 6)
    harness.engine.start()
    assert getattr(harness.runtime, begun).wait(PATIENCE_S)
    harness.engine.stop()
    # On a busy machine the other thread may not end in so short a time either.
    assert f"the thread {thread} hangs and is abandoned" in caplog.text
    assert waiting.error
    assert running.events == []
    harness.runtime.let_go()
    for left in set(threading.enumerate()) - before:
        left.join(PATIENCE_S)
        assert not left.is_alive()
    assert len(waiting.events) == 1 and len(running.events) <= 1
