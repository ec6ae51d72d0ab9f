import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.engine_client.test_client import (
    ANSWER,
    READY,
    FakeHost,
    Inbox,
    broken,
    ready,
)
from tests.unit.server.front.service import until

from seqserve_server.contract import errors
from seqserve_server.contract.events import Failed
from seqserve_server.contract.messages import Cancel, GetStats, Submit
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.stats import EngineStats, StatsReply
from seqserve_server.front.engine_client import engine, group
from seqserve_server.front.engine_client.engine import QueueKey
from seqserve_server.front.engine_client.group import LaunchedGroup

SPEC = GenerateSpec(source=[4, 2], options=DecodingOptions(max_decoding_length=8))


class Pair:
    """Two engines and the hosts that were launched for them, in the order of their launches.

    The first two are ready; those that replace them are not before the test sends so.
    """

    def __init__(self) -> None:
        self.hosts: list[FakeHost] = []
        self.group = LaunchedGroup([self._launch, self._launch], label="m/1")

    def _launch(self) -> FakeHost:
        self.hosts.append(ready() if len(self.hosts) < 2 else FakeHost())
        return self.hosts[-1]


@asynccontextmanager
async def pair_running() -> AsyncIterator[Pair]:
    pair = Pair()
    pair.group.load()
    await pair.group.start()
    try:
        yield pair
    finally:
        await pair.group.stop()
    for host in pair.hosts:
        assert host.ended.wait(PATIENCE_S), "a host was left behind"


def test_both_load_at_the_same_time_and_are_one_engine() -> None:
    pair = Pair()
    assert len(pair.hosts) == len(pair.group) == 2
    pair.group.load()
    assert pair.group.capacity == (8, 2, 2000)
    assert pair.group.status.pids == (FakeHost.pid, FakeHost.pid)
    pair.group.terminate()
    assert pair.group.status.pids == ()
    assert all(host.ended.is_set() for host in pair.hosts)


def test_one_that_cannot_load_fails_the_version() -> None:
    hosts = [ready(), broken()]
    launches = iter(hosts)
    group = LaunchedGroup([lambda: next(launches)] * 2, label="m/1")
    with pytest.raises(errors.ArtifactError, match="sha256"):
        group.load()
    group.terminate()
    assert all(host.ended.is_set() for host in hosts)


async def test_requests_go_to_the_engine_with_the_fewest() -> None:
    async with pair_running() as pair:
        first, second = pair.hosts
        inboxes = [Inbox() for _ in range(3)]
        ids = [pair.group.submit(SPEC, inbox.receive) for inbox in inboxes]
        assert len(set(ids)) == 3
        assert (await first.read(Submit)).request_id == ids[0]
        assert (await second.read(Submit)).request_id == ids[1]
        assert (await first.read(Submit)).request_id == ids[2]
        # Two have ended there, and one is under way at the other.
        for request_id, inbox in zip(ids[::2], inboxes[::2], strict=True):
            first.send_event(request_id, ANSWER)
            await until(inbox.has_ended)
        late = pair.group.submit(SPEC, Inbox().receive)
        assert (await first.read(Submit)).request_id == late


async def test_cancel_reaches_the_engine_that_has_the_request_and_no_other() -> None:
    async with pair_running() as pair:
        first, second = pair.hosts
        ids = [pair.group.submit(SPEC, Inbox().receive) for _ in range(2)]
        pair.group.cancel(ids[1], is_late=True)
        pair.group.submit(SPEC, Inbox().receive)
        await second.read(Submit)
        assert await second.read(Cancel) == Cancel(ids[1], True)
        assert (await first.read(Submit)).request_id == ids[0]


async def test_engine_that_dies_takes_its_calls_with_it_and_the_other_goes_on() -> None:
    async with pair_running() as pair:
        first, second = pair.hosts
        lost, kept = Inbox(), Inbox()
        pair.group.submit(SPEC, lost.receive)
        number = pair.group.submit(SPEC, kept.receive)
        changes: list[bool] = []
        pair.group.watch(lambda: changes.append(pair.group.status.is_ready))
        first.die()
        await until(lambda: bool(lost.events))
        [error] = [event.error for event in lost.events if isinstance(event, Failed)]
        assert isinstance(error, errors.ModelUnavailable)
        status = pair.group.status
        assert (status.is_up, status.is_ready, status.last_error) == (True, True, "")
        # Although the other one has more, requests go there.
        assert pair.group.submit(SPEC, kept.receive) == number + 1
        await second.read(Submit)
        assert (await second.read(Submit)).request_id == number + 1
        second.send_event(number, ANSWER)
        await until(lambda: ANSWER in kept.events)
        await until(lambda: len(pair.hosts) == 3)
        pair.hosts[2].send(READY)
        # The new one has none.
        await until(lambda: len(changes) == 2)
        number = pair.group.submit(SPEC, kept.receive)
        assert (await pair.hosts[2].read(Submit)).request_id == number
        assert changes == [True, True]
        assert pair.group.status.restarts == 1


async def test_version_is_down_only_when_both_are() -> None:
    async with pair_running() as pair:
        for host in pair.hosts[:2]:
            host.die()
        await until(lambda: len(pair.hosts) == 4)
        assert not (pair.group.status.is_up or pair.group.status.is_ready)
        assert pair.group.status.last_error.startswith("its engine has failed")
        with pytest.raises(errors.ModelUnavailable):
            pair.group.submit(SPEC, Inbox().receive)
        pair.hosts[3].send(READY)
        await until(lambda: pair.group.status.is_ready)
        pair.group.submit(SPEC, Inbox().receive)
        await pair.hosts[3].read(Submit)
        pair.hosts[2].send(READY)


def stats_of(tokens: float) -> EngineStats:
    stats = EngineStats()
    stats.totals["generated_tokens"] = tokens
    return stats


async def test_statistics_are_sums() -> None:
    async with pair_running() as pair:
        asked = asyncio.create_task(pair.group.newest_stats())
        for count, host in enumerate(pair.hosts, start=1):
            await host.read(GetStats)
            assert not asked.done()
            stats = stats_of(10.0 * count)
            host.send(StatsReply(count, 2, stats, low_queue_depth=1, heartbeats=(count,)))
        reply = await asyncio.wait_for(asked, PATIENCE_S)
        assert (reply.queue_depth, reply.low_queue_depth, reply.slots_in_use) == (3, 2, 4)
        assert reply.heartbeats == (1, 2)
        assert reply.stats.totals["generated_tokens"] == 30.0


async def test_newest_statistics_are_the_last_ones_where_an_engine_sends_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pair_running() as pair:
        newest = asyncio.create_task(pair.group.newest_stats())
        for host in pair.hosts:
            await host.read(GetStats)
            host.send(StatsReply(1, 0, EngineStats()))
        assert (await asyncio.wait_for(newest, PATIENCE_S)).queue_depth == 2
        monkeypatch.setattr(group, "STATS_TIMEOUT_S", 0.05)
        for when_idle in (False, True):
            reply = await pair.group.newest_stats(when_idle=when_idle)
            assert reply.queue_depth == 2, "no engine has answered again"


async def test_statistics_of_an_idle_engine_count_all_rows() -> None:
    async with pair_running() as pair:
        newest = asyncio.create_task(pair.group.newest_stats(when_idle=True))
        for slots_in_use, tokens in ((1, 1.0), (0, 2.0), (0, 3.0)):
            for host in pair.hosts:
                await host.read(GetStats)
                host.send(StatsReply(0, slots_in_use, stats_of(tokens)))
        reply = await asyncio.wait_for(newest, PATIENCE_S)
        assert reply.stats.totals["generated_tokens"] == 6.0


async def test_refusal_of_one_is_known_to_all_and_a_closed_group_takes_nothing_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than the test takes, however busy the machine is.
    monkeypatch.setattr(engine, "MAX_REPEAT_S", 1000.0)
    monkeypatch.setattr(engine, "_REPEAT_SHARE", 100.0)
    async with pair_running() as pair:
        inbox = Inbox()
        number = pair.group.submit(SPEC, inbox.receive)
        full = errors.QueueFull("the queue is full", 10.0, errors.Bound.LENGTH)
        pair.hosts[0].send_event(number, Failed(full))
        await until(lambda: bool(inbox.events))
        with pytest.raises(errors.QueueFull):
            pair.group.refusals.check(QueueKey.of(SPEC))
        pair.group.close()
        with pytest.raises(errors.Draining):
            pair.group.submit(SPEC, Inbox().receive)
