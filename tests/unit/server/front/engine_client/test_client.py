import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from tests.support.logged import logged
from tests.unit.server.engine.fake_runtime import EOS
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.service import until

from seqserve_server.contract import errors, events, messages
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Priority
from seqserve_server.contract.stats import EngineStats, Ready, StatsReply
from seqserve_server.engine.observer import StatsRecorder
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.engine_client.link import EngineLink
from seqserve_server.front.engine_client.supervisor import CircuitBreaker

ANSWER = events.Finished([events.Hypothesis([4, 5], -1.0, events.StopReason.EOS)])

Kind = TypeVar("Kind", bound=messages.Message)


class FakeHost:
    """Stands in for a host; the test reads its messages and answers for it."""

    pid = 4711

    def __init__(self, *begin: messages.Message) -> None:
        self.channel, self._theirs = socket.socketpair()
        self._stream = self._theirs.makefile("rb")
        self._unread: deque[messages.Message] = deque()
        self.num_writes = 0
        """Messages, or several that came together, that were read."""
        self.ended = threading.Event()
        for message in begin:
            self.send(message)

    def send(self, message: messages.Message) -> None:
        self._theirs.sendall(messages.encode_message(message))

    async def read(self, kind: type[Kind]) -> Kind:
        """Waits for the next message, which must be of a kind."""
        if not self._unread:
            async with asyncio.timeout(PATIENCE_S):
                came = await asyncio.to_thread(messages.read_message, self._stream)
            if came is None:
                raise BrokenPipeError("the engine has closed the socket")
            self.num_writes += 1
            self._unread += came.messages if isinstance(came, messages.Together) else [came]
        message = self._unread.popleft()
        assert isinstance(message, kind), message
        return message

    def send_event(self, number: int, event: events.Event) -> None:
        timeline = None if isinstance(event, events.Progress) else events.Timeline()
        self.send(messages.StepEvents([(number, event, timeline)]))

    def die(self) -> None:
        """Ends abruptly, with messages unread."""
        self._stream.close()
        self._theirs.close()

    def end(self) -> None:
        """Waits for the end of the socket, as a process does."""
        if not self._stream.closed:
            self._theirs.settimeout(PATIENCE_S)
            try:
                while messages.read_message(self._stream) is not None:
                    pass
            finally:
                self.die()
        self.ended.set()


READY = Ready(slots=4, max_rows=2, cache_bytes=1000)


def ready() -> FakeHost:
    return FakeHost(READY)


def engine_of(*makes: Callable[[], FakeHost], **more: Any) -> tuple[RemoteEngine, list[FakeHost]]:
    """Gives an engine, and its hosts, which are launched one after the other."""
    left, launched = iter(makes), list[FakeHost]()

    def launch() -> FakeHost:
        launched.append(next(left)())
        return launched[-1]

    return RemoteEngine(launch, label="m/1", **more), launched


@asynccontextmanager
async def remote_to(
    *makes: Callable[[], FakeHost], **more: Any
) -> AsyncIterator[tuple[RemoteEngine, list[FakeHost]]]:
    """Gives an engine whose first host is ready."""
    engine, hosts = engine_of(*makes, **more)
    engine.load()
    await engine.start()
    try:
        yield engine, hosts
    finally:
        await engine.stop()
    for host in hosts:
        # A host that was just being launched is ended by its launcher.
        assert host.ended.wait(PATIENCE_S), "a host was left behind"


class Inbox:
    def __init__(self, *source: int, **more: Any) -> None:
        self.events: list[events.Event] = []
        self.timeline: events.Timeline | None = None
        self.thread: threading.Thread | None = None
        self.request_id = 0
        self.spec = GenerateSpec(
            source=[*source, EOS],
            options=DecodingOptions(max_decoding_length=10),
            streamed=True,
            **more,
        )

    def submit(self, engine: RemoteEngine) -> None:
        self.request_id = engine.submit(self.spec, self.receive)

    def receive(self, event: events.Event, timeline: events.Timeline | None) -> None:
        self.events.append(event)
        self.timeline, self.thread = timeline, threading.current_thread()

    def has_ended(self) -> bool:
        return bool(self.events) and not isinstance(self.events[-1], events.Progress)

    @property
    def error(self) -> errors.ServiceError:
        [event] = self.events
        assert isinstance(event, events.Failed)
        return event.error


def submitted(engine: RemoteEngine, count: int) -> list[Inbox]:
    inboxes = [Inbox(5 + number) for number in range(count)]
    for inbox in inboxes:
        inbox.submit(engine)
    return inboxes


def stats_of(rows: int) -> StatsReply:
    recorder = StatsRecorder()
    recorder.stepped(rows, duration_s=0.001, outside_s=0.0)
    return StatsReply(queue_depth=2, slots_in_use=rows, stats=recorder.snapshot())


def rows_of(reply: StatsReply) -> float:
    return reply.stats.histograms["batch_rows"].buckets()[1]


async def reply_of(engine: RemoteEngine, host: FakeHost | None = None, rows: int = 0) -> StatsReply:
    """Asks for statistics, and answers in place of a host."""
    asked = engine.request_stats()
    if host is not None:
        await host.read(messages.GetStats)
        host.send(stats_of(rows))
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.wrap_future(asked)


# ---- requests and events


async def test_requests_of_one_moment_go_together() -> None:
    async with remote_to(ready) as (engine, hosts):
        requests = submitted(engine, 40)
        engine.cancel(requests[0].request_id)
        ids = [(await hosts[0].read(messages.Submit)).request_id for _ in requests]
        assert ids == [each.request_id for each in requests]
        assert await hosts[0].read(messages.Cancel) == messages.Cancel(ids[0], False)
        assert hosts[0].num_writes == 1


async def test_events_reach_requests_by_id() -> None:
    async with remote_to(ready) as (engine, hosts):
        a, b, c = submitted(engine, 3)
        assert (await hosts[0].read(messages.Submit)) == messages.Submit(a.request_id, a.spec)
        timeline = events.Timeline(1.0, 2.0, 3.0, 4.0, 5.0)
        told: list[tuple[int, events.Event, events.Timeline | None]] = [
            (c.request_id, events.Progress([7]), None),
            (a.request_id, ANSWER, timeline),
            (c.request_id, events.Progress([8]), None),
        ]
        hosts[0].send(messages.StepEvents(told))
        await until(lambda: len(c.events) == 2)
        assert c.events == [events.Progress([7]), events.Progress([8])]
        assert a.events == [ANSWER] and a.timeline == timeline
        assert a.thread is threading.current_thread()
        assert b.events == []
        # After its last event a request gets no other.
        hosts[0].send_event(a.request_id, events.Progress([9]))
        hosts[0].send_event(b.request_id, ANSWER)
        await until(lambda: bool(b.events))
        assert a.events == [ANSWER]


async def test_cancelled_request_gets_no_more_events() -> None:
    async with remote_to(ready) as (engine, hosts):
        a, b = submitted(engine, 2)
        engine.cancel(a.request_id, is_late=True)
        for _ in range(2):
            await hosts[0].read(messages.Submit)
        assert await hosts[0].read(messages.Cancel) == messages.Cancel(a.request_id, is_late=True)
        # What was on its way when it was cancelled.
        hosts[0].send_event(a.request_id, events.Progress([7]))
        hosts[0].send_event(a.request_id, ANSWER)
        hosts[0].send_event(b.request_id, ANSWER)
        await until(lambda: bool(b.events))
        assert a.events == []


async def test_cancel_of_an_ended_request_is_not_sent() -> None:
    async with remote_to(ready) as (engine, hosts):
        [inbox] = submitted(engine, 1)
        await hosts[0].read(messages.Submit)
        hosts[0].send_event(inbox.request_id, ANSWER)
        await until(lambda: bool(inbox.events))
        engine.cancel(inbox.request_id)
        engine.cancel(99)
        submitted(engine, 1)
        await hosts[0].read(messages.Submit)


# ---- draining and stopping


async def test_closed_engine_takes_nothing_new_but_the_attention_of_answers() -> None:
    async with remote_to(ready) as (engine, hosts):
        a, b = submitted(engine, 2)
        engine.close()
        with pytest.raises(errors.Draining):
            Inbox(9).submit(engine)
        assert engine.is_up
        attended = Inbox(5, answer=ANSWER, deadline_s=12.5, client_id="a", priority=Priority.LOW)
        attended.submit(engine)
        assert [(await hosts[0].read(messages.Submit)).spec for _ in range(3)][2] == attended.spec
        for inbox in (a, b):
            hosts[0].send_event(inbox.request_id, ANSWER)
        await until(lambda: bool(b.events))
        assert a.events == b.events == [ANSWER]


async def test_stop_fails_requests_under_way() -> None:
    async with remote_to(ready) as (engine, hosts):
        inboxes = submitted(engine, 3)
        await engine.stop()
        # A caller that tries again is given another version.
        assert {type(inbox.error) for inbox in inboxes} == {errors.ModelUnavailable}
        assert not engine.is_up
        assert hosts[0].ended.is_set()
        with pytest.raises(errors.Draining):
            Inbox(9).submit(engine)
        await engine.stop()
        assert len(hosts) == 1, "it was started again"


async def test_stop_before_the_start_ends_it_for_good() -> None:
    engine, hosts = engine_of(ready)
    engine.load()
    await asyncio.wait_for(engine.stop(), PATIENCE_S)
    assert hosts[0].ended.is_set()
    with pytest.raises(errors.EngineFault, match="was stopped"):
        engine.load()
    assert len(hosts) == 1


# ---- loading


def broken() -> FakeHost:
    return FakeHost(messages.LoadFailed(errors.ArtifactError("weights.bin: sha256")))


def ends_at_once() -> FakeHost:
    host = FakeHost()
    host.die()
    return host


def ends_unread() -> FakeHost:
    """As a process that does not get through its imports, before it reads what to load."""
    host = FakeHost()
    host.channel.sendall(messages.encode_message(messages.GetStats()))
    host.die()
    return host


@pytest.mark.parametrize(
    ("host", "error", "says"),
    [
        (broken, errors.ArtifactError, "sha256"),
        (ends_at_once, errors.EngineFault, "ended while it loaded"),
        (ends_unread, errors.EngineFault, "ended while it loaded"),
    ],
)
def test_host_that_does_not_load(
    host: Callable[[], FakeHost], error: type[Exception], says: str
) -> None:
    engine, hosts = engine_of(host)
    with pytest.raises(error, match=says):
        engine.load()
    assert hosts[0].ended.is_set()


def test_discarded_host_is_ended() -> None:
    engine, hosts = engine_of(ready)
    engine.load()
    for _ in range(2):
        engine.terminate()
        assert hosts[0].ended.is_set()


# ---- statistics


async def test_statistics_can_be_asked_for_from_any_thread() -> None:
    async with remote_to(ready) as (engine, hosts):
        asked = [engine.request_stats(), await asyncio.to_thread(engine.request_stats)]
        for rows in (3, 4):
            await hosts[0].read(messages.GetStats)
            hosts[0].send(stats_of(rows))
        replies = [await asyncio.wrap_future(future) for future in asked]
        assert [reply.slots_in_use for reply in replies] == [3, 4]
        assert [rows_of(reply) for reply in replies] == [3, 4]
        assert engine.last_reply == replies[-1]


async def test_statistics_before_the_start_and_after_the_end_are_the_newest() -> None:
    engine, hosts = engine_of(ready)
    assert engine.request_stats().result(0).stats.totals["source_tokens"] == 0
    engine.load()
    await engine.start()
    reply = await reply_of(engine, hosts[0], rows=3)
    unanswered = engine.request_stats()
    await hosts[0].read(messages.GetStats)
    await engine.stop()
    assert unanswered.result(0) == await reply_of(engine) == reply


async def test_cancelled_question_is_skipped() -> None:
    async with remote_to(ready) as (engine, hosts):
        gone = engine.request_stats()
        await hosts[0].read(messages.GetStats)
        assert gone.cancel()
        asked = engine.request_stats()
        for rows in (3, 4):
            hosts[0].send(stats_of(rows))
        assert rows_of(await asyncio.wrap_future(asked)) == 4
        assert engine.is_up


# ---- a host that dies


async def test_requests_fail_when_the_host_dies_and_another_one_starts() -> None:
    async with remote_to(ready, ready) as (engine, hosts):
        changes: list[bool] = []
        engine.watch(lambda: changes.append(engine.is_up))
        inboxes = submitted(engine, 3)
        hosts[0].die()
        await until(lambda: len(changes) == 2)
        assert changes == [False, True]
        assert {type(inbox.error) for inbox in inboxes} == {errors.ModelUnavailable}
        assert hosts[0].ended.is_set()
        [after] = submitted(engine, 1)
        request_id = (await hosts[1].read(messages.Submit)).request_id
        assert request_id not in {inbox.request_id for inbox in inboxes}
        hosts[1].send_event(request_id, ANSWER)
        await until(lambda: bool(after.events))
        assert after.events == [ANSWER]


async def test_requests_are_refused_until_the_next_host_is_ready() -> None:
    async with remote_to(ready, FakeHost) as (engine, hosts):
        hosts[0].die()
        await until(lambda: len(hosts) == 2)
        with pytest.raises(errors.ModelUnavailable):
            Inbox(5).submit(engine)
        hosts[1].send(Ready(slots=2, max_rows=1, cache_bytes=500))
        await until(lambda: engine.is_up)
        assert (engine.capacity.slots, engine.capacity.cache_bytes) == (2, 500)
        submitted(engine, 1)
        await hosts[1].read(messages.Submit)


async def test_counters_never_fall() -> None:
    async with remote_to(ready, FakeHost, ready) as (engine, hosts):
        changes: list[bool] = []
        engine.watch(lambda: changes.append(engine.is_up))
        for rows in (3, 4):
            assert rows_of(await reply_of(engine, hosts[0], rows)) == rows
        unanswered = engine.request_stats()
        await hosts[0].read(messages.GetStats)
        hosts[0].die()
        last = await asyncio.wait_for(asyncio.wrap_future(unanswered), PATIENCE_S)
        assert rows_of(last) == 4
        await until(lambda: len(hosts) == 2)
        meanwhile = await reply_of(engine)
        assert (meanwhile.queue_depth, meanwhile.slots_in_use) == (0, 0)
        assert rows_of(meanwhile) == 4
        hosts[1].send(READY)
        await until(lambda: len(changes) == 2)
        assert rows_of(await reply_of(engine, hosts[1], rows=5)) == 4 + 5
        hosts[1].die()
        await until(lambda: len(changes) == 4)
        assert rows_of(await reply_of(engine, hosts[2], rows=1)) == 4 + 5 + 1


def no_process() -> FakeHost:
    raise OSError("cannot allocate memory")


def hasty(**limits: Any) -> CircuitBreaker:
    """A breaker whose pauses and trials take no time, unless limits say otherwise."""
    return CircuitBreaker(**({"first_pause_s": 0.0, "trial_s": 0.0} | limits))


async def test_launch_is_tried_again_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    failing = [broken, no_process, ends_at_once]
    async with remote_to(ready, *failing, ready, breaker=hasty()) as (engine, hosts):
        submitted(engine, 2)
        hosts[0].die()
        await until(lambda: engine.status.restarts == 4 and engine.is_ready)
    (ended, lost), *failures, (again, serves) = logged(caplog)
    assert (ended, lost) == ("engine has ended", {"model": "m/1", "failed_requests": 2})
    reasons = [
        "weights.bin: sha256",
        "cannot allocate memory",
        "the engine's process ended while it loaded the model",
    ]
    failure = "engine could not be started again"
    assert failures == [
        (failure, {"model": "m/1", "restart": number, "reason": reason})
        for number, reason in enumerate(reasons, start=1)
    ]
    assert again == "engine has started again"
    assert (serves["model"], serves["restart"]) == ("m/1", 4)


async def test_stop_ends_a_host_that_still_loads() -> None:
    async with remote_to(ready, FakeHost) as (engine, hosts):
        hosts[0].die()
        await until(lambda: len(hosts) == 2)
        # It does not end by itself.
        await engine.stop()
        assert hosts[1].ended.is_set()
        assert not engine.is_up


async def test_stop_during_a_launch_leaves_nothing_behind() -> None:
    launching, may_launch = threading.Event(), threading.Event()

    def slowly() -> FakeHost:
        launching.set()
        assert may_launch.wait(PATIENCE_S)
        return ready()

    async with remote_to(ready, slowly) as (engine, hosts):
        hosts[0].die()
        assert await asyncio.to_thread(launching.wait, PATIENCE_S)
        await engine.stop()
        may_launch.set()
        await until(lambda: len(hosts) == 2)
        assert await asyncio.to_thread(hosts[1].ended.wait, PATIENCE_S)
        assert not engine.is_up


async def test_a_stop_waits_for_the_end_that_another_one_has_begun() -> None:
    may_end = threading.Event()

    class Slow(FakeHost):
        def end(self) -> None:
            assert may_end.wait(PATIENCE_S)
            super().end()

    host = Slow(READY)
    engine = RemoteEngine(lambda: host, label="m/1")
    stops = [asyncio.create_task(engine.stop()) for _ in range(2)]
    await until(lambda: engine.status.pids == ())
    await asyncio.sleep(0.05)
    assert not any(stop.done() for stop in stops)
    may_end.set()
    await asyncio.gather(*stops)
    assert host.ended.is_set()


async def test_stop_between_two_tries() -> None:
    async with remote_to(ready, broken, breaker=hasty(first_pause_s=PATIENCE_S)) as (engine, hosts):
        hosts[0].die()
        await until(lambda: len(hosts) == 2 and hosts[1].ended.is_set())
        await engine.stop()
        assert len(hosts) == 2


async def test_closed_engine_is_not_restarted() -> None:
    async with remote_to(ready) as (engine, hosts):
        [inbox] = submitted(engine, 1)
        engine.close()
        hosts[0].die()
        await until(lambda: bool(inbox.events))
        assert isinstance(inbox.error, errors.ModelUnavailable)
        await engine.stop()
        assert len(hosts) == 1


# ---- a host that hangs


STALL_S = 55.0
CHECKS = 10
"""Comparisons without progress after which an engine is ended."""


class Checks:
    """Comparisons of heartbeats, each of which happens when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._turns, self._sleep = asyncio.Semaphore(0), asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._wait)

    async def _wait(self, delay_s: float) -> None:
        if delay_s == STALL_S / CHECKS:
            await self._turns.acquire()
        else:
            await self._sleep(delay_s)

    def make(self, count: int = 1) -> None:
        for _ in range(count):
            self._turns.release()

    async def answered(self, engine: RemoteEngine, host: FakeHost, *heartbeats: int) -> None:
        await host.read(messages.GetStats)
        host.send(StatsReply(0, 0, EngineStats(), heartbeats=heartbeats))
        await until(lambda: engine.last_reply.heartbeats == heartbeats)
        self.make()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(monkeypatch)


async def test_host_with_one_hanging_thread_is_ended(
    checks: Checks, caplog: pytest.LogCaptureFixture
) -> None:
    async with remote_to(ready, FakeHost, stall_s=STALL_S) as (engine, hosts):
        # The first numbers differ from none before.
        for number in range(CHECKS + 1):
            assert engine.is_up
            await checks.answered(engine, hosts[0], number, 7)
        await until(lambda: len(hosts) == 2)
    [stalled, _] = logged(caplog)
    assert stalled == ("engine has stood still and is ended", {"model": "m/1", "seconds": STALL_S})


async def test_host_whose_threads_make_progress_is_left_alone(checks: Checks) -> None:
    async with remote_to(ready, stall_s=STALL_S) as (engine, hosts):
        for number in range(3 * CHECKS):
            # Now and then one takes longer.
            await checks.answered(engine, hosts[0], number, number // 3)
        assert engine.is_up


async def test_new_host_is_watched_too(checks: Checks) -> None:
    async with remote_to(ready, ready, ready, stall_s=STALL_S) as (engine, hosts):
        await checks.answered(engine, hosts[0], 5, 5)
        hosts[0].die()
        await until(lambda: len(hosts) == 2 and engine.is_up)
        checks.make(CHECKS)
        await until(lambda: len(hosts) == 3 and engine.is_up)


async def test_the_end_of_a_socket_that_was_replaced_is_not_that_of_the_engine() -> None:
    link, inbox, lost = EngineLink("m/1"), Inbox(5), list[str]()
    link.on_lost = lambda: lost.append("lost")
    old, new = socket.socketpair(), socket.socketpair()
    await link.connect(old[0])
    link.submit(inbox.spec, inbox.receive)
    await asyncio.sleep(0)
    old[1].close()
    await link.connect(new[0])
    await asyncio.sleep(0.01)
    assert link.is_up and not lost and not link.pending
    new[1].close()
    await until(lambda: bool(lost))
    assert not link.is_up and lost == ["lost"]
    await link.stop()
    assert isinstance(inbox.error, errors.ModelUnavailable)
