"""Fronts as the main process sees them; here their processes are handlers in its loop."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.loop import settled

from seqserve.errors import SeqserveError
from seqserve_server.contract.stats import Ready
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.fronts.front import Front
from seqserve_server.front.fronts.fronts import Fronts
from seqserve_server.front.fronts.peer import Handler, Peer, PeerGoneError
from seqserve_server.front.fronts.shared_versions import (
    EngineRecord,
    SharedVersions,
    Snapshot,
    VersionRecord,
)
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import processes as child_process

HANG_S = 60.0
VERSION = "m", 1


class FrontProcess:
    """Answers calls as a front does, unless a test says otherwise, and notes them."""

    pid = 1

    def __init__(
        self, channel: socket.socket, door: socket.socket, handlers: dict[str, Handler]
    ) -> None:
        self.door = door
        self.calls: list[tuple[Any, ...]] = []
        self._channel = channel
        self._handlers = {
            name: handlers.get(name) or self._noted(name)
            for name in ("open", "show", "serve", "until_idle")
        }
        self.peer: Peer

    async def begin(self) -> None:
        self.peer = await Peer(self._handlers, lambda: None).connect(self._channel)

    def _noted(self, name: str) -> Callable[..., bool]:
        def note(*arguments: Any) -> bool:
            self.calls.append((name, *arguments))
            return True

        return note

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in self.calls if each[0] == name]

    def kill(self) -> None:
        pass

    def wait(self, timeout_s: float) -> int:
        return 0


class Processes(list[FrontProcess]):
    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}

    def start(self, module: str, *arguments: str, pass_fds: list[int], **_: Any) -> FrontProcess:
        channel, door = (socket.socket(fileno=os.dup(each)) for each in pass_fds)
        process = FrontProcess(channel, door, self.handlers)
        self.append(process)
        return process


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    launched = Processes()
    monkeypatch.setattr(child_process, "start", launched.start)
    yield launched
    for each in launched:
        each._channel.close()
        each.door.close()


def bounded(test: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(test)
    async def run(**arguments: Any) -> None:
        async with asyncio.timeout(HANG_S):
            await test(**arguments)
            # Sockets close in the next turns of the loop.
            await settled()

    return run


async def end(front: Front, process: FrontProcess) -> None:
    """Closes both ends, so that the front is not started again."""
    assert front._peer is not None
    if front._beating is not None:
        front._beating.cancel()
    front._peer.close()
    process.peer.close()
    # Sockets close in the next turns of the loop.
    await settled()


def nothing() -> Snapshot:
    return Snapshot((), "", {})


def ends(*_: Any) -> socket.socket:
    raise BrokenPipeError


@bounded
async def test_calls_to_a_front_that_cannot_start_fail(
    processes: Processes,
) -> None:
    async def wait() -> None:
        await asyncio.sleep(HANG_S)

    async def refuse(*_: Any) -> None:
        await asyncio.sleep(0.01)
        raise SeqserveError("no certificate")

    processes.handlers = {"open": refuse, "show": wait}
    front = Front(0, ServeOptions(), nothing, ends, {}, lambda front: None)
    await processes[0].begin()
    starting = asyncio.create_task(front.start())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(front.call("show"))
    with pytest.raises(SeqserveError, match="no certificate"):
        await starting
    with pytest.raises(PeerGoneError):
        await waiting
    front.terminate()
    processes.handlers = {}
    front.load()
    await processes[1].begin()
    await front.start()
    assert front.is_serving
    await end(front, processes[1])
    front.terminate()


@bounded
async def test_a_front_that_starts_learns_what_changes_meanwhile(processes: Processes) -> None:
    rollout: Any = SimpleNamespace(repository=Repository(), deployment=SimpleNamespace())
    entry = Entry(name="m", version=1)

    async def serve() -> None:
        rollout.repository.add(entry)
        rollout.on_change()
        assert await rollout.deployment.until_idle(entry, 1.0)

    processes.handlers = {"serve": serve}
    fronts = Fronts(ServeOptions(port=0, front_processes=2), rollout, Metrics())
    await processes[0].begin()
    front = fronts._fronts[0]
    await front.start()
    [[first], *_, [last]] = processes[0].named("show")
    assert not first.versions and last.versions[0][:2] == VERSION
    assert processes[0].named("until_idle") == [(*VERSION, 1.0)]
    await end(front, processes[0])
    fronts.terminate()


ENGINE = EngineRecord(Ready(1, 1, 1), pid=7, fault="")


def shown(*names: str, **changes: Any) -> Snapshot:
    engine = ENGINE._replace(**changes)
    versions = [VersionRecord(name, 1, ModelState.READY, "", (engine, engine)) for name in names]
    return Snapshot(tuple(versions), "", {})


class Rig:
    """The versions of a front, and a main process, which notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.told = asyncio.Event()
        self.engines: list[socket.socket] = []
        self._ours, self._door = socket.socketpair()
        self._ends = socket.socketpair()
        self._main = Peer({"connect": self._connect, "tell": self.told.set}, lambda: None)
        self._front = Peer({}, lambda: None)
        self.versions = SharedVersions(
            SimpleNamespace(read=self._read, caching=lambda model: model),  # type: ignore[arg-type]
            Metrics(),
            0,
            self._front,
            self._door,
        )

    async def __aenter__(self) -> "Rig":
        for peer, end in zip((self._main, self._front), self._ends, strict=True):
            await peer.connect(end)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.versions.stop()
        for peer in (self._main, self._front):
            peer.close()
        for each in (self._ours, self._door, *self.engines):
            each.close()

    def _read(self, name: str, version: int, engine: Any) -> Any:
        if name == "broken":
            raise SeqserveError("it is broken")
        return SimpleNamespace(engine=engine)

    def _connect(self, *engine: Any) -> None:
        self.asked.append(engine)
        if "ended" in engine:
            raise BrokenPipeError
        ours, theirs = socket.socketpair()
        self.engines.append(ours)
        with theirs:
            socket.send_fds(self._ours, [b"c"], [theirs.fileno()])


@bounded
async def test_a_version_that_cannot_be_read_hides_no_other() -> None:
    async with Rig() as rig:
        with pytest.raises(SeqserveError, match="it is broken"):
            await rig.versions.show(shown("broken", "whole"))
        assert rig.asked == [("whole", 1, 0), ("whole", 1, 1)]
        states = {each.name: each.state for each in rig.versions.repository.entries}
        assert states == {"broken": ModelState.LOADING, "whole": ModelState.READY}


@bounded
async def test_a_front_asks_once_for_a_socket_to_each_process() -> None:
    async with Rig() as rig:
        for _ in range(2):
            await rig.versions.show(shown("m"))
        assert len(rig.asked) == 2
        [model] = rig.versions.repository.models()
        assert model.engine.status.is_up
        # While it is started again.
        await rig.versions.show(shown("m", pid=0, fault="it has failed"))
        assert len(rig.asked) == 2 and not model.engine.status.is_ready
        await rig.versions.show(shown("m", pid=8))
        assert len(rig.asked) == 4 and model.engine.status.is_ready


@bounded
async def test_a_process_that_has_just_ended_hinders_no_other() -> None:
    async with Rig() as rig:
        await rig.versions.show(shown("ended", "m"))
        assert [each[0] for each in rig.asked] == ["ended", "ended", "m", "m"]


@bounded
async def test_a_front_asks_for_a_socket_when_it_has_lost_one() -> None:
    async with Rig() as rig:
        await rig.versions.show(shown("m"))
        rig.engines[1].close()
        await rig.told.wait()
        await rig.versions.show(shown("m"))
        assert rig.asked[2:] == [("m", 1, 1)]


@bounded
async def test_a_front_gets_the_socket_that_it_asks_for(processes: Processes) -> None:
    ours, theirs = socket.socketpair()
    engine = SimpleNamespace(further_socket=lambda: theirs)
    model: Any = "is loaded"
    entry = Entry(name="m", version=1, model=model)
    deployment = SimpleNamespace(engines={entry: SimpleNamespace(engines=[engine])})
    rollout: Any = SimpleNamespace(repository=Repository([entry]), deployment=deployment)
    fronts = Fronts(ServeOptions(port=0, front_processes=2), rollout, Metrics())
    front, process = fronts._fronts[0], processes[0]
    await process.begin()
    front._peer = await Peer(front._handlers, lambda: None).connect(front._channel)  # type: ignore[arg-type]
    await process.peer.call("connect", *VERSION, 0)
    _, [descriptor], *_ = socket.recv_fds(process.door, 1, 1)
    with ours, socket.socket(fileno=descriptor) as received:
        received.sendall(b"hello")
        assert ours.recv(9) == b"hello"
    await end(front, process)
    fronts.terminate()
