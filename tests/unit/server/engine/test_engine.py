from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.server.engine.fake_runtime import EOS, FakeRuntime, detokenize, expected

from seqserve_server.contract.errors import (
    DeadlinePassed,
    Draining,
    EngineFault,
    NoScorer,
    QueueFull,
    Stage,
)
from seqserve_server.contract.events import Event, Failed, Finished, Progress, TargetScored
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority, Request
from seqserve_server.engine import engine as module
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.observer import NullObserver

PATIENCE_S = 30.0


class Inbox:
    """What one request was told, and a way to wait for its end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended = threading.Event()

    def receive(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, Progress):
            self.ended.set()

    @property
    def last(self) -> Event:
        assert self.ended.wait(PATIENCE_S), "no last event"
        return self.events[-1]


class Ends(NullObserver):
    """An observer that keeps how requests ended."""

    def __init__(self) -> None:
        self.cancellations: list[Request] = []
        self.told: list[tuple[Request, Event]] = []

    def cancelled(self, request: Request) -> None:
        self.cancellations.append(request)

    def ended(self, request: Request, event: Event) -> None:
        self.told.append((request, event))


class Harness:
    """An engine over a fake runtime whose steps, and whose scorer, can be held up."""

    def __init__(
        self, workers: int = 2, slots: int = 4, max_queue: int = 100, caller_share: float = 1.0
    ) -> None:
        self.runtime = FakeRuntime()
        self.gate = threading.Event()
        self.gate.set()
        self.stepping = threading.Event()
        self.runtime.before_step = self._step
        self.may_teach = threading.Event()
        self.may_teach.set()
        self.teaching = threading.Event()
        self.runtime.before_score = self._teach
        self.observer = Ends()
        limits = EngineLimits(
            workers=workers,
            slots=slots,
            max_queue=max_queue,
            max_source_tokens_per_step=20,
            caller_share=caller_share,
        )
        self.engine = Engine(self.runtime, limits, self._deliver, self.observer, detokenize)
        self.broken = 0

    def _step(self) -> None:
        self.stepping.set()
        assert self.gate.wait(PATIENCE_S)

    def _teach(self) -> None:
        self.teaching.set()
        assert self.may_teach.wait(PATIENCE_S)

    def _deliver(self, events: list[tuple[Request, Event]]) -> None:
        for request, event in events:
            request.receive(event)
        if self.broken:
            self.broken -= 1
            raise RuntimeError("the event loop is closed")

    def wait_idle(self) -> None:
        """Waits until no request waits or holds a slot."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.engine.slots_in_use or self.engine.queue_depth:
            assert time.monotonic() < deadline_s, "a slot is not given back"
            time.sleep(0.001)

    def wait_decoded(self, count: int) -> None:
        """Waits until no slot is held, but so many answers wait for their attention."""
        deadline_s = time.monotonic() + PATIENCE_S
        scheduler = self.engine._scheduler
        while scheduler.running or scheduler.decoded(Priority.NORMAL) != count:
            assert time.monotonic() < deadline_s, "they are not decoded"
            time.sleep(0.001)

    def submit(
        self, *source: int, shortest: int = 0, attends: bool = False, **more: Any
    ) -> tuple[Request, Inbox]:
        inbox = Inbox()
        options = DecodingOptions(
            max_decoding_length=10, min_decoding_length=shortest, return_attention=attends
        )
        words = [*source, EOS]
        request = Request(source=words, options=options, receive=inbox.receive, **more)
        self.engine.submit(request)
        return request, inbox

    def assert_counted(self, *calls: tuple[Request, Inbox]) -> None:
        """Checks that the observer was told of each end what the caller was, once."""
        told = [(request, inbox.last) for request, inbox in calls]
        assert sorted(self.observer.told, key=_place) == sorted(told, key=_place)


def _place(end: tuple[Request, Event]) -> int:
    return id(end[0])


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.gate.set()
    harness.may_teach.set()
    harness.engine.stop()


def test_many_requests_from_many_threads_each_get_their_own_answer(harness: Harness) -> None:
    harness.engine.start()
    results: list[tuple[Request, Inbox]] = []

    def call(seed: int) -> None:
        for number in range(20):
            results.append(harness.submit(*[4 + (seed * 7 + number) % 40] * (1 + number % 6)))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    for request, inbox in results:
        assert inbox.last == expected(request.source, request.options)
        assert len(inbox.events) == 1
    harness.wait_idle()
    harness.assert_counted(*results)


def test_slots_are_spread_over_workers() -> None:
    engine = Harness(workers=3, slots=4).engine
    assert engine.slots == 6
    assert engine.cache_bytes == 2 * Harness(workers=3, slots=3).engine.cache_bytes


def test_requests_beyond_the_slots_wait() -> None:
    harness = Harness(workers=1, slots=2, max_queue=3)
    harness.gate.clear()
    harness.engine.start()
    inboxes = [harness.submit(5)[1], harness.submit(6)[1]]
    assert harness.stepping.wait(PATIENCE_S)
    while harness.engine.queue_depth < 3:
        inboxes.append(harness.submit(7)[1])
    with pytest.raises(QueueFull):
        harness.submit(8)
    assert 1 <= harness.engine.slots_in_use <= 2
    harness.gate.set()
    assert not any(isinstance(inbox.last, Failed) for inbox in inboxes)
    harness.engine.stop()


def test_fault_in_a_step_is_told_and_the_worker_lives_on(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def fault() -> None:
        raise RuntimeError("broken")

    harness.runtime.before_step = fault
    harness.engine.start()
    _, inbox = harness.submit(5)
    assert isinstance(inbox.last, Failed)
    assert isinstance(inbox.last.error, EngineFault)
    assert "a step failed" in caplog.text
    harness.runtime.before_step = lambda: None
    for word in (6, 7, 8):
        request, inbox = harness.submit(word)
        assert inbox.last == expected(request.source, request.options)


def test_worker_outlives_whoever_listened(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.broken = 2
    harness.engine.start()
    for word in (5, 6, 7, 8):
        request, inbox = harness.submit(word)
        assert inbox.last == expected(request.source, request.options)
    assert "could not be delivered" in caplog.text


def test_cancelled_request_frees_its_slot(harness: Harness) -> None:
    harness.gate.clear()
    harness.engine.start()
    request, inbox = harness.submit(5, shortest=10)
    assert harness.stepping.wait(PATIENCE_S)
    harness.engine.cancel(request)
    harness.gate.set()
    harness.wait_idle()
    assert inbox.events == []
    assert harness.observer.cancellations == [request]


def test_request_cancelled_in_the_queue_is_counted_too(harness: Harness) -> None:
    request, inbox = harness.submit(5)
    harness.engine.cancel(request)
    assert harness.engine.queue_depth == 0
    assert harness.observer.cancellations == [request]
    assert inbox.events == []


def test_what_waits_at_the_start_is_answered(harness: Harness) -> None:
    calls = [harness.submit(word) for word in range(5, 20)]
    harness.engine.start()
    for request, inbox in calls:
        assert inbox.last == expected(request.source, request.options)
    harness.wait_idle()


def test_stop_fails_what_runs_and_what_waits() -> None:
    harness = Harness(workers=1, slots=1)
    harness.gate.clear()
    harness.engine.start()
    inboxes = [harness.submit(word, shortest=10)[1] for word in (5, 6, 7)]
    assert harness.stepping.wait(PATIENCE_S)
    stopping = threading.Thread(target=harness.engine.stop)
    stopping.start()
    while not harness.engine._scheduler.stopped:
        pass
    harness.gate.set()
    stopping.join(PATIENCE_S)
    for inbox in inboxes:
        assert isinstance(inbox.last, Failed)
        assert isinstance(inbox.last.error, EngineFault)
        assert len(inbox.events) == 1
    assert (harness.engine.slots_in_use, harness.engine.queue_depth) == (0, 0)


def test_stop_twice_or_before_the_start_is_fine(harness: Harness) -> None:
    _, inbox = harness.submit(5)
    harness.engine.stop()
    harness.engine.stop()
    assert isinstance(inbox.last, Failed)
    assert len(inbox.events) == 1
    with pytest.raises(Draining):
        harness.submit(5)


def test_warm_up_leaves_the_engine_as_new(harness: Harness) -> None:
    harness.engine.warm_up()
    harness.engine.start()
    request, inbox = harness.submit(5, 6, 7)
    assert inbox.last == expected(request.source, request.options)


def until_beating(engine: Engine, threads: int) -> list[bool]:
    """Waits until so many threads have come round; tells which."""
    before, deadline_s = engine.heartbeats, time.monotonic() + PATIENCE_S
    while True:
        beating = [now > then for now, then in zip(engine.heartbeats, before, strict=True)]
        if sum(beating) == threads:
            return beating
        assert time.monotonic() < deadline_s, f"only these do: {beating}"
        time.sleep(0.01)


def test_every_thread_comes_round_but_for_one_that_hangs(harness: Harness) -> None:
    harness.engine.start()
    assert until_beating(harness.engine, 3) == [True] * 3
    harness.gate.clear()
    harness.submit(5)
    assert harness.stepping.wait(PATIENCE_S)
    # The other worker, and the scorer.
    going_on = until_beating(harness.engine, 2)
    assert until_beating(harness.engine, 2) == going_on


def test_answers_that_wait_for_their_attention_are_bounded() -> None:
    harness = Harness(workers=2, slots=4, max_queue=4)
    harness.may_teach.clear()
    harness.engine.start()
    calls = [harness.submit(5, attends=True) for _ in range(4)]
    harness.wait_decoded(4)
    # The slots are free, but there is no room for more answers to wait.
    calls += [harness.submit(6, attends=True) for _ in range(3)]
    assert (harness.engine.slots_in_use, harness.engine.queue_depth) == (0, 7)
    # Others pass: they take nothing that those wait for.
    for word in range(5, 20):
        request, inbox = harness.submit(word)
        assert inbox.last == expected(request.source, request.options)
        harness.observer.told.clear()
    calls.append(harness.submit(7, attends=True))
    with pytest.raises(QueueFull):
        harness.submit(8, attends=True)
    assert all(not inbox.events for _, inbox in calls)
    harness.may_teach.set()
    for request, inbox in calls:
        assert isinstance(inbox.last, Finished)
        [found] = inbox.last.hypotheses
        assert (
            found.attention
            and found._replace(attention=b"") == expected(request.source, request.options).best
        )
    harness.wait_idle()
    harness.assert_counted(*calls)
    harness.engine.stop()


def test_pace_counts_what_an_answer_waits_for_its_attention(harness: Harness) -> None:
    harness.runtime.before_score = lambda: time.sleep(0.01)
    harness.engine.start()
    for _ in range(4):
        assert isinstance(harness.submit(5, attends=True)[1].last, Finished)
    assert harness.engine._scheduler._pace.held_s > 0.01


def test_answer_that_waits_for_its_attention_can_be_cancelled(harness: Harness) -> None:
    harness.may_teach.clear()
    harness.engine.start()
    calls = [harness.submit(5, attends=True) for _ in range(4)]
    assert harness.teaching.wait(PATIENCE_S)
    harness.wait_decoded(4)
    # One of them the scorer has already.
    for request, _ in calls:
        harness.engine.cancel(request)
        harness.engine.cancel(request)
    assert (harness.engine.slots_in_use, harness.engine.queue_depth) == (0, 0)
    harness.may_teach.set()
    kept = harness.submit(6, attends=True)
    assert isinstance(kept[1].last, Finished)
    harness.wait_idle()
    assert harness.observer.cancellations == [request for request, _ in calls]
    assert all(not inbox.events for _, inbox in calls)
    assert all(request.tokens_done for request, _ in calls), "they were decoded"
    harness.assert_counted(kept)


def test_deadline_that_passes_before_the_attention_is_told(harness: Harness) -> None:
    harness.may_teach.clear()
    harness.engine.start()
    first = harness.submit(5, attends=True)
    assert harness.teaching.wait(PATIENCE_S)
    late = harness.submit(6, attends=True)
    harness.wait_decoded(2)
    late[0].deadline_s = time.monotonic()
    harness.may_teach.set()
    assert isinstance(late[1].last, Failed)
    assert isinstance(late[1].last.error, DeadlinePassed)
    assert late[1].last.error.where is Stage.DECODE
    assert late[0].tokens_done, "it was decoded"
    harness.wait_idle()
    harness.assert_counted(first, late)


@pytest.mark.parametrize("attends", [False, True])
def test_fault_of_the_teacher_is_told_and_gives_everything_back(
    harness: Harness, attends: bool
) -> None:
    def fault() -> None:
        raise RuntimeError("broken")

    harness.runtime.before_score = fault
    harness.engine.start()
    more: dict[str, Any] = {"attends": True} if attends else {"target": [6, EOS]}
    failed = harness.submit(5, **more)
    assert isinstance(failed[1].last, Failed)
    assert isinstance(failed[1].last.error, EngineFault)
    harness.runtime.before_score = lambda: None
    sound = harness.submit(5, **more)
    assert isinstance(sound[1].last, Finished if attends else TargetScored)
    harness.wait_idle()
    harness.assert_counted(failed, sound)


def test_fault_in_a_step_leaves_answers_that_are_decoded(harness: Harness) -> None:
    harness.may_teach.clear()
    harness.engine.start()
    decoded = harness.submit(5, attends=True)
    harness.wait_decoded(1)

    def fault() -> None:
        raise RuntimeError("broken")

    harness.runtime.before_step = fault
    failed = harness.submit(6, attends=True)
    assert isinstance(failed[1].last, Failed)
    harness.may_teach.set()
    assert isinstance(decoded[1].last, Finished)
    harness.wait_idle()
    harness.assert_counted(decoded, failed)


def test_stop_fails_what_waits_for_the_teacher() -> None:
    harness = Harness()
    harness.may_teach.clear()
    harness.engine.start()
    taught = harness.submit(5, target=[6, EOS])
    assert harness.teaching.wait(PATIENCE_S)
    left = [harness.submit(5, target=[6, EOS]), harness.submit(6, attends=True)]
    harness.wait_decoded(1)
    assert harness.engine.queue_depth == 2
    stopping = threading.Thread(target=harness.engine.stop)
    stopping.start()
    while not harness.engine._known.stopped:
        time.sleep(0.001)
    harness.may_teach.set()
    stopping.join(PATIENCE_S)
    # What was under way is finished.
    assert isinstance(taught[1].last, TargetScored)
    for _, inbox in left:
        assert isinstance(inbox.last, Failed)
        assert len(inbox.events) == 1
    assert (harness.engine.slots_in_use, harness.engine.queue_depth) == (0, 0)
    harness.assert_counted(taught, *left)


def test_what_waits_for_the_teacher_shows_in_the_queue(harness: Harness) -> None:
    harness.may_teach.clear()
    harness.engine.start()
    calls = [harness.submit(5, target=[6, EOS])]
    assert harness.teaching.wait(PATIENCE_S)
    for priority in Priority:
        calls.append(harness.submit(5, target=[6, EOS], priority=priority))
        calls.append(harness.submit(5, attends=True, priority=priority))
    deadline_s = time.monotonic() + PATIENCE_S
    while not all(harness.engine._scheduler.decoded(priority) for priority in Priority):
        assert time.monotonic() < deadline_s
    assert (harness.engine.queue_depth, harness.engine.low_queue_depth) == (4, 2)
    harness.may_teach.set()
    harness.wait_idle()
    harness.assert_counted(*calls)


def test_flood_of_targets_leaves_room_for_another_caller() -> None:
    harness = Harness(max_queue=8, caller_share=0.5)
    harness.may_teach.clear()
    harness.engine.start()
    loud = [harness.submit(5, target=[6, EOS], caller="loud", wants_attention=True)]
    assert harness.teaching.wait(PATIENCE_S)
    with pytest.raises(QueueFull):
        while True:
            loud.append(harness.submit(5, target=[6, EOS], caller="loud", wants_attention=True))
    assert len(loud) == 6
    quiet = harness.submit(5, target=[6, EOS], caller="quiet", wants_attention=True)
    harness.may_teach.set()
    assert isinstance(quiet[1].last, TargetScored)
    harness.wait_idle()
    assert isinstance(loud[-1][1].last, TargetScored)
    ends = [request for request, _ in harness.observer.told]
    # Behind the one that ran, and one of the other caller.
    assert ends.index(quiet[0]) <= 2
    harness.engine.stop()


@pytest.mark.parametrize("more", [{"attends": True}, {"target": [6, EOS]}])
def test_model_without_a_teacher_refuses_what_needs_one(
    harness: Harness, more: dict[str, Any]
) -> None:
    harness.runtime.can_score = False
    harness.engine.warm_up()
    harness.engine.start()
    with pytest.raises(NoScorer, match=r"fake/1 has no scorer\.onnx.*export it again"):
        harness.submit(5, **more)
    request, inbox = harness.submit(5)
    assert inbox.last == expected(request.source, request.options)
    assert harness.runtime.scored == []


def test_warm_up_runs_the_teacher_too(harness: Harness) -> None:
    harness.engine.warm_up()
    assert harness.runtime.scored == [1]


@pytest.mark.parametrize("hangs", ["step", "scorer"])
def test_stop_leaves_a_thread_behind_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hangs: str
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    harness = Harness(workers=1, slots=1)
    if hangs == "step":
        harness.gate.clear()
        running = harness.submit(5)
        waiting = harness.submit(6)
        harness.engine.start()
        assert harness.stepping.wait(PATIENCE_S)
    else:
        harness.may_teach.clear()
        running = harness.submit(5, target=[6, EOS], wants_attention=True)
        waiting = harness.submit(6, target=[6, EOS])
        harness.engine.start()
        assert harness.teaching.wait(PATIENCE_S)
    harness.engine.stop()
    assert caplog.text.count("hangs and is left behind") == 1
    assert isinstance(waiting[1].last, Failed)
    assert running[1].events == []
    harness.gate.set()
    harness.may_teach.set()
    for thread in (*harness.engine._threads, harness.engine._teaching):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert len(waiting[1].events) == 1 and len(running[1].events) <= 1
