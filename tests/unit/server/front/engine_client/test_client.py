"""An engine at the other end of a socket, as the event loop sees it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from tests.unit.server.engine.fake_runtime import EOS, FakeRuntime, expected
from tests.unit.server.front.engine_client.thread_host import ThreadHost

from seqserve_server.contract.errors import (
    ArtifactError,
    Draining,
    EngineFault,
    ModelUnavailable,
    QueueFull,
    ServiceError,
)
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Hypothesis,
    Progress,
    StopReason,
    Timeline,
)
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.messages import (
    Cancel,
    GetStats,
    LoadFailed,
    Message,
    Ready,
    StatsReply,
    StepEvents,
    Submit,
    encode_message,
    read_message,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority, Request
from seqserve_server.contract.stats import EngineStats, StatsRecorder
from seqserve_server.front.engine_client import client as module
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.engine_client.refusals import QueueKey, RefusalCache

PATIENCE_S = 30.0
ANSWER = Finished([Hypothesis([4, 5], -1.0, StopReason.EOS)])

Kind = TypeVar("Kind", bound=Message)


class Puppet:
    """Stands where a host would be; the test reads its mail and answers for it."""

    def __init__(self, *begin: Message) -> None:
        self.channel, self._theirs = socket.socketpair()
        self._stream = self._theirs.makefile("rb")
        self.ended = threading.Event()
        for message in begin:
            self.say(message)

    def say(self, message: Message) -> None:
        self._theirs.sendall(encode_message(message))

    async def hear(self, kind: type[Kind]) -> Kind:
        """Waits for the next message, which must be of a kind."""
        async with asyncio.timeout(PATIENCE_S):
            message = await asyncio.to_thread(read_message, self._stream)
        assert isinstance(message, kind), message
        return message

    def tell(self, number: int, event: Event) -> None:
        self.say(StepEvents([(number, event, None if isinstance(event, Progress) else Timeline())]))

    def die(self) -> None:
        """Ends without a word, whatever it was sent unread."""
        self._stream.close()
        self._theirs.close()

    def end(self) -> None:
        """Waits for the end of the socket, as a process does."""
        if not self._stream.closed:
            self._theirs.settimeout(PATIENCE_S)
            try:
                while read_message(self._stream) is not None:
                    pass
            finally:
                self.die()
        self.ended.set()


def ready() -> Puppet:
    return Puppet(Ready(slots=4, max_rows=2, cache_bytes=1000))


class Hosts:
    """What is launched, one after the other."""

    def __init__(self, *makes: Callable[[], Puppet]) -> None:
        self._makes = iter(makes)
        self.launched: list[Puppet] = []

    def launch(self) -> Puppet:
        self.launched.append(next(self._makes)())
        return self.launched[-1]


@asynccontextmanager
async def remote_to(
    *makes: Callable[[], Puppet], stall_s: float = 0.0
) -> AsyncIterator[tuple[RemoteEngine, Hosts]]:
    """Gives an engine whose first host is ready."""
    hosts = Hosts(*makes)
    engine = RemoteEngine(hosts.launch, stall_s)
    engine.load()
    await engine.start()
    try:
        yield engine, hosts
    finally:
        await engine.stop()
    for host in hosts.launched:
        # One that was just being launched is ended by whoever launched it.
        assert host.ended.wait(PATIENCE_S), "a host was left behind"


class Inbox:
    """A request, and what it was told."""

    def __init__(self, *source: int, options: DecodingOptions | None = None) -> None:
        self.events: list[Event] = []
        self.request = Request(
            source=[*source, EOS],
            options=options or DecodingOptions(max_decoding_length=10),
            receive=self.events.append,
            streamed=True,
        )

    def has_ended(self) -> bool:
        return bool(self.events) and not isinstance(self.events[-1], Progress)

    @property
    def error(self) -> ServiceError:
        [event] = self.events
        assert isinstance(event, Failed)
        return event.error


def submitted(engine: RemoteEngine, count: int) -> list[Inbox]:
    inboxes = [Inbox(5 + number) for number in range(count)]
    for inbox in inboxes:
        engine.submit(inbox.request)
    return inboxes


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for a state that is sure to come, and fails where it does not."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.001)


def figures_of(rows: int) -> StatsReply:
    tally = StatsRecorder()
    tally.stepped(rows, duration_s=0.001, outside_s=0.0)
    return StatsReply(queue_depth=2, slots_in_use=rows, figures=tally.figures())


def rows_of(report: StatsReply) -> float:
    return report.figures.histograms["batch_rows"].buckets()[1]


async def report_of(engine: RemoteEngine, host: Puppet | None = None, rows: int = 0) -> StatsReply:
    """Asks, and answers for the host where there is one."""
    asked = engine.ask()
    if host is not None:
        await host.hear(GetStats)
        host.say(figures_of(rows))
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.wrap_future(asked)


# ---- requests and events


async def test_load_takes_over_what_the_host_has() -> None:
    async with remote_to(ready) as (engine, _):
        assert (engine.slots, engine.cache_bytes, engine.is_up) == (4, 1000, True)


async def test_request_goes_over_as_it_is() -> None:
    async with remote_to(ready) as (engine, hosts):
        inbox = Inbox(5, 6)
        inbox.request.deadline_s = 12.5
        inbox.request.caller, inbox.request.priority = "10.0.0.7", Priority.LOW
        engine.submit(inbox.request)
        sent = await hosts.launched[0].hear(Submit)
        request = inbox.request
        assert sent == Submit(
            request.number,
            [5, 6, EOS],
            request.options,
            12.5,
            True,
            request.timeline.arrived_s,
            caller="10.0.0.7",
            priority=Priority.LOW,
        )


async def test_events_reach_requests_by_number() -> None:
    async with remote_to(ready) as (engine, hosts):
        a, b, c = submitted(engine, 3)
        timeline = Timeline(1.0, 2.0, 3.0, 4.0, 5.0)
        told: list[tuple[int, Event, Timeline | None]] = [
            (c.request.number, Progress([7]), None),
            (a.request.number, ANSWER, timeline),
            (c.request.number, Progress([8]), None),
        ]
        hosts.launched[0].say(StepEvents(told))
        await until(lambda: len(c.events) == 2)
        assert c.events == [Progress([7]), Progress([8])]
        assert a.events == [ANSWER] and a.request.timeline == timeline
        assert b.events == []
        # Whoever has got the last event gets no other.
        hosts.launched[0].tell(a.request.number, Progress([9]))
        hosts.launched[0].tell(b.request.number, ANSWER)
        await until(lambda: bool(b.events))
        assert a.events == [ANSWER]


async def test_events_come_in_the_loop() -> None:
    async with remote_to(ready) as (engine, hosts):
        threads = []
        inbox = Inbox(5)
        inbox.request.receive = lambda event: threads.append(threading.current_thread())
        engine.submit(inbox.request)
        hosts.launched[0].tell(inbox.request.number, ANSWER)
        await until(lambda: bool(threads))
        assert threads == [threading.current_thread()]


async def test_cancelled_request_is_told_nothing_more() -> None:
    async with remote_to(ready) as (engine, hosts):
        [host] = hosts.launched
        a, b = submitted(engine, 2)
        a.request.deadline_s = 3.0
        engine.cancel(a.request)
        for _ in range(2):
            await host.hear(Submit)
        # With the deadline of now, since it may have come closer.
        assert await host.hear(Cancel) == Cancel(a.request.number, 3.0)
        # What was on its way when it was cancelled.
        host.tell(a.request.number, Progress([7]))
        host.tell(a.request.number, ANSWER)
        host.tell(b.request.number, ANSWER)
        await until(lambda: bool(b.events))
        assert a.events == []


async def test_cancel_of_what_has_ended_is_not_sent() -> None:
    async with remote_to(ready) as (engine, hosts):
        [host] = hosts.launched
        [inbox] = submitted(engine, 1)
        await host.hear(Submit)
        host.tell(inbox.request.number, ANSWER)
        await until(lambda: bool(inbox.events))
        engine.cancel(inbox.request)
        engine.cancel(Inbox(6).request)
        submitted(engine, 1)
        await host.hear(Submit)


async def test_full_queue_of_the_engine_is_an_event() -> None:
    runtime = FakeRuntime()
    gate, stepping = threading.Event(), threading.Event()

    def step() -> None:
        stepping.set()
        assert gate.wait(PATIENCE_S)

    runtime.before_step = step
    limits = EngineLimits(workers=1, slots=1, max_queue=1, max_source_tokens_per_step=20)
    engine = RemoteEngine(lambda: ThreadHost(runtime, limits))
    # A moment that does not pass.
    engine.promises = RefusalCache(lambda: 0.0)
    await asyncio.to_thread(engine.load)
    await engine.start()
    [first] = submitted(engine, 1)
    assert await asyncio.to_thread(stepping.wait, PATIENCE_S)
    second, third = submitted(engine, 2)
    await until(lambda: bool(third.events))
    assert isinstance(third.error, QueueFull) and third.error.retry_after_s > 0
    with pytest.raises(QueueFull) as again:
        engine.promises.check(QueueKey.of(third.request))
    assert str(again.value) == str(third.error)
    gate.set()
    for inbox in (first, second):
        await until(inbox.has_ended)
        assert inbox.events[-1] == expected(inbox.request.source, inbox.request.options)
    await engine.stop()


# ---- draining and stopping


async def test_closed_engine_takes_nothing_new_and_finishes_the_rest() -> None:
    async with remote_to(ready) as (engine, hosts):
        a, b = submitted(engine, 2)
        engine.close()
        with pytest.raises(Draining):
            engine.submit(Inbox(9).request)
        assert engine.is_up
        for inbox in (a, b):
            hosts.launched[0].tell(inbox.request.number, ANSWER)
        await until(lambda: bool(b.events))
        assert a.events == b.events == [ANSWER]


async def test_stop_fails_what_is_under_way() -> None:
    async with remote_to(ready) as (engine, hosts):
        inboxes = submitted(engine, 3)
        await engine.stop()
        # A caller that tries again is given another version.
        assert {type(inbox.error) for inbox in inboxes} == {ModelUnavailable}
        assert not engine.is_up
        assert hosts.launched[0].ended.is_set()
        with pytest.raises(Draining):
            engine.submit(Inbox(9).request)
        await engine.stop()
        assert len(hosts.launched) == 1, "it was started again"


async def test_stop_before_the_start() -> None:
    hosts = Hosts(ready)
    engine = RemoteEngine(hosts.launch)
    engine.load()
    await asyncio.wait_for(engine.stop(), PATIENCE_S)
    assert hosts.launched[0].ended.is_set()


# ---- loading


def test_model_that_cannot_be_loaded() -> None:
    hosts = Hosts(lambda: Puppet(LoadFailed(ArtifactError("weights.bin: sha256"))))
    engine = RemoteEngine(hosts.launch)
    with pytest.raises(ArtifactError, match="sha256"):
        engine.load()
    assert hosts.launched[0].ended.is_set()


def test_host_that_ends_while_it_loads() -> None:
    hosts = Hosts(Puppet)
    engine = RemoteEngine(hosts.launch)
    hosts.launched[0].die()
    with pytest.raises(EngineFault, match="ended while it loaded"):
        engine.load()
    assert hosts.launched[0].ended.is_set()


def test_host_that_ends_before_it_reads_what_to_load() -> None:
    hosts = Hosts(Puppet)
    engine = RemoteEngine(hosts.launch)
    # As a process that does not get through its imports.
    hosts.launched[0].channel.sendall(encode_message(GetStats()))
    hosts.launched[0].die()
    with pytest.raises(EngineFault, match="ended while it loaded"):
        engine.load()


def test_discarded_host_is_ended() -> None:
    hosts = Hosts(ready)
    engine = RemoteEngine(hosts.launch)
    engine.load()
    engine.discard()
    assert hosts.launched[0].ended.is_set()
    engine.discard()


# ---- figures


async def test_report_is_asked_for_from_any_thread() -> None:
    async with remote_to(ready) as (engine, hosts):
        [host] = hosts.launched
        asked = [engine.ask(), await asyncio.to_thread(engine.ask)]
        for rows in (3, 4):
            await host.hear(GetStats)
            host.say(figures_of(rows))
        reports = [await asyncio.wrap_future(future) for future in asked]
        assert [report.slots_in_use for report in reports] == [3, 4]
        assert [rows_of(report) for report in reports] == [3, 4]
        assert engine.report == reports[-1]


async def test_report_before_the_start_and_after_the_end_is_the_last_one() -> None:
    hosts = Hosts(ready)
    engine = RemoteEngine(hosts.launch)
    assert engine.ask().result(0).figures.totals["source_tokens"] == 0
    engine.load()
    await engine.start()
    report = await report_of(engine, hosts.launched[0], rows=3)
    await engine.stop()
    assert await report_of(engine) == report


async def test_stop_tells_who_has_asked() -> None:
    async with remote_to(ready) as (engine, hosts):
        report = await report_of(engine, hosts.launched[0], rows=3)
        asked = engine.ask()
        await hosts.launched[0].hear(GetStats)
        await engine.stop()
        assert asked.result(0) == report


async def test_who_asks_and_goes_is_not_told() -> None:
    async with remote_to(ready) as (engine, hosts):
        gone = engine.ask()
        await hosts.launched[0].hear(GetStats)
        assert gone.cancel()
        asked = engine.ask()
        for rows in (3, 4):
            hosts.launched[0].say(figures_of(rows))
        assert rows_of(await asyncio.wrap_future(asked)) == 4
        assert engine.is_up


# ---- a host that dies


async def test_calls_under_way_fail_and_another_host_begins() -> None:
    async with remote_to(ready, ready) as (engine, hosts):
        changes: list[tuple[bool, bool]] = []
        engine.on_change = lambda is_up: changes.append((is_up, engine.is_up))
        inboxes = submitted(engine, 3)
        hosts.launched[0].die()
        await until(lambda: len(changes) == 2)
        assert changes == [(False, False), (True, True)]
        assert {type(inbox.error) for inbox in inboxes} == {ModelUnavailable}
        assert hosts.launched[0].ended.is_set()
        [after] = submitted(engine, 1)
        number = (await hosts.launched[1].hear(Submit)).number
        assert number not in {inbox.request.number for inbox in inboxes}
        hosts.launched[1].tell(number, ANSWER)
        await until(lambda: bool(after.events))
        assert after.events == [ANSWER]


async def test_nothing_is_taken_until_another_one_is_ready() -> None:
    async with remote_to(ready, Puppet) as (engine, hosts):
        hosts.launched[0].die()
        await until(lambda: len(hosts.launched) == 2)
        with pytest.raises(ModelUnavailable):
            engine.submit(Inbox(5).request)
        hosts.launched[1].say(Ready(slots=2, max_rows=1, cache_bytes=500))
        await until(lambda: engine.is_up)
        assert (engine.slots, engine.cache_bytes) == (2, 500)
        submitted(engine, 1)
        await hosts.launched[1].hear(Submit)


async def test_counters_never_fall() -> None:
    async with remote_to(ready, Puppet, ready) as (engine, hosts):
        changes: list[bool] = []
        engine.on_change = changes.append
        for rows in (3, 4):
            assert rows_of(await report_of(engine, hosts.launched[0], rows)) == rows
        unanswered = engine.ask()
        await hosts.launched[0].hear(GetStats)
        hosts.launched[0].die()
        last = await asyncio.wait_for(asyncio.wrap_future(unanswered), PATIENCE_S)
        assert rows_of(last) == 4
        await until(lambda: len(hosts.launched) == 2)
        meanwhile = await report_of(engine)
        assert (meanwhile.queue_depth, meanwhile.slots_in_use) == (0, 0)
        assert rows_of(meanwhile) == 4
        hosts.launched[1].say(Ready(4, 2, 1000))
        await until(lambda: len(changes) == 2)
        assert rows_of(await report_of(engine, hosts.launched[1], rows=5)) == 4 + 5
        hosts.launched[1].die()
        await until(lambda: len(changes) == 4)
        assert rows_of(await report_of(engine, hosts.launched[2], rows=1)) == 4 + 5 + 1


class Naps:
    """Takes the place of sleeping, and notes how long it would have been."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.delays_s: list[float] = []
        self._sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._nap)

    async def _nap(self, delay_s: float) -> None:
        if delay_s >= module._FIRST_DELAY_S:
            self.delays_s.append(delay_s)
            delay_s = 0.0
        await self._sleep(delay_s)


def broken() -> Puppet:
    return Puppet(LoadFailed(ArtifactError("weights.bin: sha256")))


def no_process() -> Puppet:
    raise OSError("cannot allocate memory")


def ends_at_once() -> Puppet:
    host = Puppet()
    host.die()
    return host


async def test_launch_that_fails_is_tried_again_and_again_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    naps = Naps(monkeypatch)
    failing = [broken, no_process, ends_at_once, broken, broken, broken, broken, broken]
    async with remote_to(ready, *failing, ready, broken, ready) as (engine, hosts):
        changes: list[bool] = []
        engine.on_change = changes.append
        hosts.launched[0].die()
        await until(lambda: len(changes) == 2)
        assert changes == [False, True]
        assert naps.delays_s == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        for reason in ("sha256", "cannot allocate memory", "ended while it loaded"):
            assert reason in caplog.text
        # Next time it is as patient as at first.
        hosts.launched[-1].die()
        await until(lambda: len(changes) == 4)
        assert naps.delays_s[8:] == [0.5]


async def test_stop_ends_a_host_that_still_loads() -> None:
    async with remote_to(ready, Puppet) as (engine, hosts):
        hosts.launched[0].die()
        await until(lambda: len(hosts.launched) == 2)
        # It ends only when it is told to.
        await engine.stop()
        assert hosts.launched[1].ended.is_set()
        assert not engine.is_up


async def test_stop_during_a_launch_leaves_nothing_behind() -> None:
    launching, may_launch = threading.Event(), threading.Event()

    def slowly() -> Puppet:
        launching.set()
        assert may_launch.wait(PATIENCE_S)
        return ready()

    async with remote_to(ready, slowly) as (engine, hosts):
        hosts.launched[0].die()
        assert await asyncio.to_thread(launching.wait, PATIENCE_S)
        await engine.stop()
        may_launch.set()
        await until(lambda: len(hosts.launched) == 2)
        assert await asyncio.to_thread(hosts.launched[1].ended.wait, PATIENCE_S)
        assert not engine.is_up


async def test_stop_between_two_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY_S", PATIENCE_S)
    async with remote_to(ready, broken) as (engine, hosts):
        hosts.launched[0].die()
        await until(lambda: len(hosts.launched) == 2 and hosts.launched[1].ended.is_set())
        await engine.stop()
        assert len(hosts.launched) == 2


async def test_nothing_begins_again_once_it_is_closed() -> None:
    async with remote_to(ready) as (engine, hosts):
        [inbox] = submitted(engine, 1)
        engine.close()
        hosts.launched[0].die()
        await until(lambda: bool(inbox.events))
        assert isinstance(inbox.error, ModelUnavailable)
        await engine.stop()
        assert len(hosts.launched) == 1


# ---- a host that hangs


def with_beats(*heartbeats: int) -> StatsReply:
    return StatsReply(0, 0, EngineStats(), heartbeats=heartbeats)


async def answered(host: Puppet, *heartbeats: int) -> None:
    await host.hear(GetStats)
    host.say(with_beats(*heartbeats))


async def test_host_that_says_nothing_is_ended_and_another_begins() -> None:
    async with remote_to(ready, ready, stall_s=0.05) as (engine, hosts):
        [inbox] = submitted(engine, 1)
        await until(lambda: len(hosts.launched) == 2 and engine.is_up)
        assert isinstance(inbox.error, ModelUnavailable)


async def test_host_of_which_one_thread_hangs_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    async with remote_to(ready, Puppet, stall_s=0.05) as (_, hosts):
        [host] = hosts.launched
        for number in range(11):
            await answered(host, number, 7)
        await until(lambda: len(hosts.launched) == 2)
    assert "the engine has stood still for 0.05 s and is ended" in caplog.text


async def test_host_whose_threads_come_round_is_left_alone() -> None:
    async with remote_to(ready, stall_s=0.05) as (engine, hosts):
        [host] = hosts.launched
        for number in range(30):
            # Now and then one takes longer.
            await answered(host, number, number // 3)
        assert engine.is_up


async def test_host_is_watched_after_another_one_has_died() -> None:
    async with remote_to(ready, ready, ready, stall_s=0.05) as (engine, hosts):
        await answered(hosts.launched[0], 5, 5)
        hosts.launched[0].die()
        await until(lambda: len(hosts.launched) == 3 and engine.is_up)
