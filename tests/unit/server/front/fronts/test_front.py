"""Fronts as the main process sees them; here their processes are handlers in its loop."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from seqserve.errors import SeqserveError
from seqserve_server.contract.stats import Ready
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.fronts.front import Front, FrontState
from seqserve_server.front.fronts.fronts import Fronts
from seqserve_server.front.fronts.peer import Handler, Peer, PeerGoneError
from seqserve_server.front.fronts.shared_versions import SharedVersions, Snapshot
from seqserve_server.front.models.repository import Entry, Repository
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import child_process

HANG_S = 30.0
VERSION = "m", 1


class FrontProcess:
    """Answers calls as a front does, unless a test says otherwise, and notes them."""

    pid = 1

    def __init__(self, channel: socket.socket, handlers: dict[str, Handler]) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._channel = channel
        self._handlers = {
            name: handlers.get(name) or self._noted(name)
            for name in ("open", "read", "connect", "show", "serve", "until_idle")
        }
        self.peer: Peer

    def begin(self) -> None:
        self.peer = Peer(self._channel, self._handlers, lambda: None)

    def _noted(self, name: str) -> Callable[..., bool]:
        def note(*arguments: Any) -> bool:
            for each in arguments:
                if isinstance(each, socket.socket):
                    each.close()
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
        process = FrontProcess(socket.socket(fileno=os.dup(pass_fds[0])), self.handlers)
        self.append(process)
        return process


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    launched = Processes()
    monkeypatch.setattr(child_process, "start", launched.start)
    yield launched
    for each in launched:
        each._channel.close()


def run(test: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await test()

    asyncio.run(bounded())


def nothing() -> FrontState:
    return FrontState([], Snapshot((), "", {}))


def ends() -> socket.socket:
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours


def engines(*names: str) -> FrontState:
    engine = SimpleNamespace(
        capacity=Ready(1, 1, 1),
        is_up=True,
        status=SimpleNamespace(pids=(7,)),
        further_socket=ends,
    )
    group: Any = SimpleNamespace(engines=[engine])
    return FrontState([(name, 1, group) for name in names], Snapshot((), "", {}))


def test_calls_to_a_front_that_cannot_start_fail_and_it_starts_later(processes: Processes) -> None:
    async def wait() -> None:
        await asyncio.sleep(HANG_S)

    async def refuse(*_: Any) -> None:
        await asyncio.sleep(0.01)
        raise SeqserveError("no certificate")

    async def test() -> None:
        processes.handlers = {"open": refuse, "read": wait}
        front = Front(0, ServeOptions(), nothing)
        processes[0].begin()
        starting = asyncio.create_task(front.start())
        await asyncio.sleep(0)
        waiting = asyncio.create_task(front.call("read"))
        with pytest.raises(SeqserveError, match="no certificate"):
            await starting
        with pytest.raises(PeerGoneError):
            await waiting
        front.terminate()
        processes.handlers = {}
        front.load()
        processes[1].begin()
        await front.start()
        assert front.is_serving
        assert front._beating is not None
        front._beating.cancel()
        processes[1].peer.close()
        front.terminate()

    run(test)


def test_a_front_that_starts_learns_what_changes_meanwhile(processes: Processes) -> None:
    rollout: Any = SimpleNamespace(repository=Repository(), deployment=SimpleNamespace())
    entry = Entry(name="m", version=1)

    async def serve() -> None:
        rollout.repository.add(entry)
        rollout.on_change()
        assert await rollout.deployment.until_idle(entry, None, 1.0)

    async def test() -> None:
        processes.handlers = {"serve": serve}
        fronts = Fronts(ServeOptions(port=0, front_processes=2))
        fronts.control(rollout, Metrics())
        processes[0].begin()
        front = fronts._fronts[0]
        await front.start()
        [[first], *_, [last]] = processes[0].named("show")
        assert not first.versions and last.versions[0][:2] == VERSION
        assert processes[0].named("until_idle") == [(*VERSION, 1.0)]
        assert front._beating is not None
        front._beating.cancel()
        processes[0].peer.close()
        fronts.terminate()

    run(test)


def test_a_version_that_cannot_be_read_hides_no_other(processes: Processes) -> None:
    def read(name: str, *_: Any) -> None:
        if name == "broken":
            raise SeqserveError("it is broken")

    async def test() -> None:
        processes.handlers = {"read": read}
        front = Front(0, ServeOptions(), lambda: engines("broken", "whole"))
        processes[0].begin()
        with pytest.raises(SeqserveError, match="it is broken"):
            await front.start()
        assert [each[0] for each in processes[0].named("connect")] == ["whole"]
        assert len(processes[0].named("show")) == 1
        processes[0].peer.close()
        front.terminate()

    run(test)


def test_a_front_whose_socket_an_engine_closed_gets_another_one(processes: Processes) -> None:
    async def test() -> None:
        front = Front(0, ServeOptions(), lambda: engines("m"))
        process = processes[0]
        process.begin()
        await front.start()
        await front.tell()
        assert len(process.named("connect")) == 1
        await process.peer.call("reconnect", *VERSION, 0)
        assert len(process.named("connect")) == 2
        assert front._beating is not None
        front._beating.cancel()
        process.peer.close()
        front.terminate()

    run(test)


def test_a_front_asks_for_a_socket_when_it_has_lost_one() -> None:
    asked: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    async def test() -> None:
        ours, theirs = socket.socketpair()
        front = Peer(theirs, {}, lambda: None)
        main = Peer(ours, {"reconnect": lambda *link: asked.put_nowait(link)}, lambda: None)
        loader: Any = SimpleNamespace(
            read=lambda name, version, engine: SimpleNamespace(engine=engine), caching=lambda m: m
        )
        versions = SharedVersions(loader, Metrics(), 0, lambda: front)
        await versions.read(*VERSION, [Ready(1, 1, 1)] * 2)
        await versions.connect(*VERSION, 1, ends())
        assert await asked.get() == (*VERSION, 1)
        main.close()
        front.close()

    run(test)
