from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from seqserve_server.engine.engine import Engine
from seqserve_server.engine.limits import EngineLimits
from seqserve_server.engine.observer import NullObserver
from seqserve_server.engine.request import DecodingOptions, Event, Failed, Progress, Request
from seqserve_server.errors import Draining, EngineFault, QueueFull

from .fake_runtime import EOS, FakeRuntime, detokenize, expected

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


class Cancellations(NullObserver):
    def __init__(self) -> None:
        self.requests: list[Request] = []

    def cancelled(self, request: Request) -> None:
        self.requests.append(request)


class Harness:
    """An engine over a fake runtime whose steps can be held up."""

    def __init__(self, workers: int = 2, slots: int = 4, max_queue: int = 100) -> None:
        self.runtime = FakeRuntime()
        self.gate = threading.Event()
        self.gate.set()
        self.stepping = threading.Event()
        self.runtime.before_step = self._step
        self.observer = Cancellations()
        limits = EngineLimits(
            workers=workers, slots=slots, max_queue=max_queue, max_source_tokens_per_step=20
        )
        self.engine = Engine(self.runtime, limits, self._deliver, self.observer, detokenize)
        self.broken = 0

    def _step(self) -> None:
        self.stepping.set()
        assert self.gate.wait(PATIENCE_S)

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

    def submit(self, *source: int, shortest: int = 0) -> tuple[Request, Inbox]:
        inbox = Inbox()
        options = DecodingOptions(max_decoding_length=10, min_decoding_length=shortest)
        request = Request(source=[*source, EOS], options=options, receive=inbox.receive)
        self.engine.submit(request)
        return request, inbox


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.gate.set()
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
    assert harness.observer.requests == [request]


def test_request_cancelled_in_the_queue_is_counted_too(harness: Harness) -> None:
    request, inbox = harness.submit(5)
    harness.engine.cancel(request)
    assert harness.engine.queue_depth == 0
    assert harness.observer.requests == [request]
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
    before, deadline_s = engine.beats, time.monotonic() + PATIENCE_S
    while True:
        beating = [now > then for now, then in zip(engine.beats, before, strict=True)]
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
    # The other worker, and the teacher.
    going_on = until_beating(harness.engine, 2)
    assert until_beating(harness.engine, 2) == going_on
