"""One front as the main process sees it: its process, and what it has been told."""

import asyncio
import logging
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import StartupError
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.engine_client.group import LaunchedGroup
from seqserve_server.front.engine_client.supervisor import CircuitBreaker, Supervisor
from seqserve_server.front.fronts.peer import Handler, Peer, PeerGoneError
from seqserve_server.front.fronts.shared_versions import Snapshot
from seqserve_server.front.models.repository import Entry
from seqserve_server.process import child_process, logs

_END_TIMEOUT_S = 10.0
_HEARTBEAT_S = 2.0
# Most of it is for reading the vocabularies of models.
_START_TIMEOUT_S = 60.0


class FrontState(NamedTuple):
    """Settings of every front."""

    engines: list[tuple[str, int, LaunchedGroup]]
    """Name and number of each version that takes calls, or soon will, and its engines."""
    snapshot: Snapshot


class Front:
    """A front process, which is started again when it has ended."""

    def __init__(self, number: int, options: ServeOptions, state: Callable[[], FrontState]) -> None:
        self.number = number
        self._options = options
        self._state = state
        self._supervisor = Supervisor(str(number), self, CircuitBreaker(), names=("front", "front"))
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._peer: Peer | None = None
        self._beating: asyncio.Task[None] | None = None
        self._telling = asyncio.Lock()
        self._read: set[tuple[str, int]] = set()
        self._pids: dict[tuple[str, int, int], int] = {}
        self._closed = False
        self.is_serving = False
        """Whether it takes calls."""
        self.port = 0
        """The port that it listens at, once it serves."""
        self.counted: list[Metric] = []
        """Its counters, as of its last heartbeat."""
        self.on_end: Callable[[Front], None] = lambda front: None
        """Called when its process has ended."""
        self.handlers: Mapping[str, Handler] = {}
        """What it may call."""
        self.load()

    @property
    def pids(self) -> tuple[int, ...]:
        """The id of its process; None while no process runs."""
        return () if self._process is None else (self._process.pid,)

    @property
    def restarts(self) -> int:
        """Starts after the first one."""
        return self._supervisor.restarts

    def load(self) -> None:
        """Launches the process unless it runs."""
        if self._process is not None or self._closed:
            return
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = child_process.start(
                "seqserve_server.front.fronts",
                *(str(theirs.fileno()), self._options.log_format.value),
                self._options.log_level.value,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def terminate(self) -> None:
        """Kills the process; blocks."""
        if self._process is not None:
            self._process.kill()
        self.end()

    def end(self) -> None:
        """Closes the socket, at which the process ends, and waits for that; blocks."""
        process, self._process = self._process, None
        if self._channel is not None:
            self._channel.close()
        if process is not None:
            child_process.end(process, _END_TIMEOUT_S)

    async def start(self) -> None:
        """Has the process open the port, take all versions and serve; StartupError if it cannot."""
        if self._channel is None or self._closed:
            raise StartupError("the server stops")
        self._read, self._pids, self._beating = set(), {}, None
        handlers = {**self.handlers, "reconnect": self._reconnect}
        peer = self._peer = Peer(self._channel, handlers, self._gone)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                # Changes that happen meanwhile are sent next.
                async with self._telling:
                    self.port = await peer.call("open", self.number, self._options)
                    await self._tell()
                await peer.call("serve")
            self.is_serving = True
        except (PeerGoneError, TimeoutError) as error:
            how = "has ended" if isinstance(error, PeerGoneError) else "stands still"
            raise StartupError(f"front {self.number} {how} while it starts") from None
        finally:
            if not self.is_serving:
                peer.close()
        self._supervisor.started()
        self._beating = asyncio.create_task(self._beat())

    def _gone(self) -> None:
        self.is_serving = False
        if self._beating is None:
            # Its start fails.
            return
        self._beating.cancel()
        self.on_end(self)
        if not self._closed:
            logs.event("front has ended", {"front": self.number}, logging.ERROR)
            self._supervisor.failed()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            try:
                async with asyncio.timeout(self._options.stall_timeout_s or None):
                    await self.count()
            except TimeoutError:
                fields = {"front": self.number, "seconds": self._options.stall_timeout_s}
                logs.event("front has stood still and is ended", fields, logging.ERROR)
                if self._process is not None:
                    # Its socket closes, and it is started again.
                    self._process.kill()
                return

    async def call(self, name: str, *arguments: Any, channel: socket.socket | None = None) -> Any:
        """Calls a handler of the front; raises PeerGoneError if it has ended."""
        if self._peer is None:
            raise PeerGoneError(name)
        return await self._peer.call(name, *arguments, channel=channel)

    async def count(self) -> list[Metric]:
        """Asks for what it has counted."""
        with suppress(PeerGoneError):
            self.counted = await self.call("counted")
        return self.counted

    async def tell(self) -> None:
        """Sends the front all versions, engines and states that it does not know.

        Raises:
            PeerGoneError: It has ended.
            SeqserveError: It cannot read a version. It knows all others.
        """
        async with self._telling:
            await self._tell()

    async def _tell(self) -> None:
        state, faults = self._state(), []
        for name, version, engine in state.engines:
            try:
                await self._introduce(name, version, engine)
            except SeqserveError as error:
                faults.append(error)
        await self.call("show", state.snapshot)
        if faults:
            raise faults[0]

    async def _introduce(self, name: str, version: int, engine: LaunchedGroup) -> None:
        if (name, version) not in self._read:
            capacities = [each.capacity for each in engine.engines]
            await self.call("read", name, version, capacities)
            self._read.add((name, version))
        for index, each in enumerate(engine.engines):
            key = name, version, index
            for pid in each.status.pids:
                if each.is_up and self._pids.get(key) != pid:
                    # If its process has just ended, there will be another one to tell of.
                    with suppress(OSError):
                        channel = each.further_socket()
                        self._pids[key] = pid
                        await self.call("connect", *key, channel=channel)

    async def _reconnect(self, *key: Any) -> None:
        """Gives a front that has lost its socket to an engine another one, if the engine runs."""
        self._pids.pop(key, None)
        await self.tell()

    async def until_idle(self, entry: Entry, timeout_s: float) -> bool:
        """Waits for the calls of a version that takes no new ones."""
        key = entry.name, entry.version
        try:
            with suppress(SeqserveError):
                await self.tell()
            return bool(await self.call("until_idle", *key, timeout_s))
        except PeerGoneError:
            return True
        finally:
            self._read.discard(key)
            self._pids = {known: pid for known, pid in self._pids.items() if known[:2] != key}

    async def drain(self, timeout_s: float) -> bool:
        """Finishes the calls of the front, ends its process; tells whether all finished in time."""
        self._closed = True
        self._supervisor.stop()
        finished = False
        with suppress(PeerGoneError, TimeoutError):
            async with asyncio.timeout(timeout_s + _END_TIMEOUT_S):
                finished = bool(await self.call("drain", timeout_s))
        if self._beating is not None:
            self._beating.cancel()
        if self._peer is not None:
            self._peer.close()
        await asyncio.to_thread(self.end)
        return finished
