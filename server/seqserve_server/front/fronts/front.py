"""One front as the main process sees it: its process, and what it has been told."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from prometheus_client.core import Metric

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import StartupError
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.engine_client.supervisor import CircuitBreaker, Supervisor
from seqserve_server.front.fronts.peer import Handler, Peer, PeerGoneError, handlers_of
from seqserve_server.process import logs, processes

_END_TIMEOUT_S = 10.0
_HEARTBEAT_S = 2.0
# Most of it is for reading the vocabularies of models.
_START_TIMEOUT_S = 60.0


class Front:
    """A front process, which is started again when it has ended."""

    def __init__(
        self,
        number: int,
        options: ServeOptions,
        snapshot: Callable[[], object],
        further_socket: Callable[[str, int, int], socket.socket],
        handlers: Mapping[str, Handler],
        on_end: Callable[[Front], None],
    ) -> None:
        """Launches the process.

        It asks for sockets to engine processes by name, version and number, and may call
        ``handlers``. ``on_end`` is called when it has ended.
        """
        self.number = number
        self._options = options
        self._snapshot, self._further_socket, self._on_end = snapshot, further_socket, on_end
        self._handlers = {**handlers, **handlers_of(self.tell, self._connect)}
        self._supervisor = Supervisor(str(number), self, CircuitBreaker(), names=("front", "front"))
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._door: socket.socket | None = None
        self._peer: Peer | None = None
        self._beating: asyncio.Task[None] | None = None
        self._telling = asyncio.Lock()
        self._closed = False
        self.is_serving = False
        """Whether it takes calls."""
        self.port = 0
        """The port that it listens at, once it serves."""
        self.counted: list[Metric] = []
        """Its counters, as of its last heartbeat."""
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
        log = self._options.log_format, self._options.log_level
        self._process, (self._channel, self._door) = processes.start_connected(
            "seqserve_server.serve.front_process", *log, sockets=2
        )

    def terminate(self) -> None:
        """Kills the process; blocks."""
        if self._process is not None:
            self._process.kill()
        self.end()

    def end(self) -> None:
        """Closes the socket, at which the process ends, and waits for that; blocks."""
        process, self._process = self._process, None
        for each in (self._channel, self._door):
            if each is not None:
                each.close()
        if process is not None:
            processes.end(process, _END_TIMEOUT_S)

    async def start(self) -> None:
        """Has the process open the port, take all versions and serve; StartupError if it cannot."""
        if self._channel is None or self._closed:
            raise StartupError("the server stops")
        self._beating = None
        peer = self._peer = await Peer(self._handlers, self._gone).connect(self._channel)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                # Changes that happen meanwhile are sent next.
                async with self._telling:
                    self.port = await peer.call("open", self.number, self._options)
                    await peer.call("show", self._snapshot())
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
        self._on_end(self)
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

    async def call(self, name: str, *arguments: Any) -> Any:
        """Calls a handler of the front; raises PeerGoneError if it has ended."""
        if self._peer is None:
            raise PeerGoneError(name)
        return await self._peer.call(name, *arguments)

    async def count(self) -> list[Metric]:
        """Asks for what it has counted."""
        with suppress(PeerGoneError):
            self.counted = await self.call("counted")
        return self.counted

    async def tell(self) -> None:
        """Sends the front all versions, engines and states.

        Raises:
            PeerGoneError: It has ended.
            SeqserveError: It cannot read a version. It knows all others.
        """
        async with self._telling:
            await self.call("show", self._snapshot())

    def _connect(self, name: str, version: int, number: int) -> None:
        assert self._door is not None
        with self._further_socket(name, version, number) as channel:
            socket.send_fds(self._door, [b"c"], [channel.fileno()])

    async def until_idle(self, name: str, version: int, timeout_s: float) -> bool:
        """Waits for the calls of a version that takes no new ones."""
        try:
            with suppress(SeqserveError):
                await self.tell()
            return bool(await self.call("until_idle", name, version, timeout_s))
        except PeerGoneError:
            return True

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
