"""An engine in another process, which is started again when it fails.

Call every method from the loop, except :meth:`RemoteEngine.load`,
:meth:`EngineLink.request_stats` and :attr:`RemoteEngine.status`.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from seqserve_server.contract import messages
from seqserve_server.contract.errors import EngineFault
from seqserve_server.contract.stats import Ready
from seqserve_server.front.engine_client.engine import EngineStatus
from seqserve_server.front.engine_client.link import EngineLink
from seqserve_server.front.engine_client.supervisor import CircuitBreaker, Supervisor
from seqserve_server.process import logs, processes
from seqserve_server.process.logs import LogFormat, LogLevel

# Heartbeats are compared several times within the limit, so that a pause of the whole machine, as
# of a suspended VM, fails one comparison, not all.
_STALL_CHECKS = 10


class EngineProcess:
    """A process that runs one engine, and the front's end of its socket."""

    module = "seqserve_server.engine"

    def __init__(
        self,
        setup: messages.Setup,
        log_format: LogFormat,
        log_level: LogLevel,
        *,
        is_shared: bool = False,
        end_timeout_s: float = 10.0,
    ) -> None:
        """Starts the process and sends it the setup; :meth:`connect` needs ``is_shared``."""
        self._label = "/".join(setup.folder.parts[-2:])
        self._end_timeout_s = end_timeout_s
        self._process, (self.channel, *self._doors) = processes.start_connected(
            self.module, log_format, log_level, sockets=1 + is_shared
        )
        self.channel.sendall(messages.encode_message(setup))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def connect(self) -> socket.socket:
        """Returns our end of a further socket, for another front."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._doors[0], [b"c"], [theirs.fileno()])
        return ours

    def end(self) -> None:
        """Waits until the process has ended, and kills it after a timeout; blocks."""
        for door in self._doors:
            door.close()
        status = processes.end(self._process, self._end_timeout_s)
        if status is None:
            # Not its fault if it was still loading a model that was refused meanwhile.
            fields = {"model": self._label, "seconds": self._end_timeout_s}
            logs.event("engine process did not end and was killed", fields, logging.WARNING)
        elif status:
            fields = {"model": self._label, "status": status}
            logs.event("engine process ended abnormally", fields, logging.ERROR)


class RemoteEngine(EngineLink):
    """The front's handle of one engine."""

    def __init__(
        self,
        launch: Callable[[], EngineProcess],
        stall_s: float = 0.0,
        *,
        label: str,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        """Launches the process at once; one that hangs for ``stall_s`` is killed, 0 for never."""
        super().__init__(label)
        self._launch = launch
        self._stall_s = stall_s
        self._supervisor = Supervisor(label, self, breaker or CircuitBreaker())
        self._watching: asyncio.Task[None] | None = None
        self._ending = threading.Lock()
        self._host: EngineProcess | None = launch()

    def load(self) -> None:
        """Waits until the host is ready; blocks."""
        try:
            self.capacity = self._loaded()
        except BaseException:
            self.terminate()
            raise

    def _loaded(self) -> Ready:
        if not self._closed:
            self._host = self._host or self._launch()
        host = self._host
        # It may have been closed while the process started.
        if self._closed or host is None:
            raise EngineFault("the engine was stopped")
        # The host sends nothing more before it gets a request.
        with host.channel.makefile("rb") as stream:
            message = messages.read_message(stream)
        if isinstance(message, messages.LoadFailed):
            raise message.error
        if not isinstance(message, Ready):
            raise EngineFault("the engine's process ended while it loaded the model")
        return message

    def terminate(self) -> None:
        """Ends the host, or waits until another thread has ended it; blocks."""
        with self._ending:
            host, self._host = self._host, None
            if host is None:
                return
            with suppress(OSError):
                # Wakes a thread that waits for the host to load.
                host.channel.shutdown(socket.SHUT_RDWR)
            host.channel.close()
            host.end()

    @property
    def is_ready(self) -> bool:
        """Whether requests can be taken, by an engine that has not failed again and again."""
        return self.is_up and self._supervisor.is_trusted

    def watch(self, on_change: Callable[[], None]) -> None:
        """Calls ``on_change`` when :attr:`status` has changed."""
        self._supervisor.on_change = on_change

    @property
    def status(self) -> EngineStatus:
        """The state of the process; may be read from any thread."""
        host, is_ready = self._host, self.is_ready
        return EngineStatus(
            is_up=self.is_up,
            is_ready=is_ready,
            last_error="" if is_ready else self._supervisor.last_error,
            restarts=self._supervisor.restarts,
            pids=() if host is None else (host.pid,),
        )

    async def start(self) -> None:
        """Starts to exchange messages with a host that is ready."""
        assert self._host is not None
        await self.connect(self._host.channel)
        self._supervisor.started()
        if self._stall_s:
            self._watching = asyncio.create_task(self._watch())

    def further_socket(self) -> socket.socket:
        """Connects another front and returns its end; OSError if the host takes no requests."""
        if self._host is None or not self.is_up:
            raise BrokenPipeError
        return self._host.connect()

    async def _watch(self) -> None:
        seen: tuple[int, ...] = ()
        checks = 0
        while checks < _STALL_CHECKS:
            self._ask_stats(Future())
            await asyncio.sleep(self._stall_s / _STALL_CHECKS)
            beats = self.last_reply.heartbeats
            # A thread that makes no progress keeps its number.
            if beats and all(now != then for now, then in zip(beats, seen, strict=False)):
                seen, checks = beats, 0
            else:
                checks += 1
        fields = {"model": self.label, "seconds": self._stall_s}
        logs.event("engine has stood still and is ended", fields, logging.ERROR)
        if self._transport is not None:
            self._transport.abort()

    async def stop(self) -> None:
        """Ends the host; unfinished requests fail."""
        self._supervisor.stop()
        if self._watching is not None:
            self._watching.cancel()
        await super().stop()
        await asyncio.to_thread(self.terminate)

    def lost(self) -> bool:
        """Fails unfinished requests, because the host has ended, and starts another one."""
        failed = self.pending
        if not super().lost():
            return False
        if self._watching is not None:
            self._watching.cancel()
        fields = {"model": self.label} | ({"failed_requests": failed} if failed else {})
        logs.event("engine has ended", fields, logging.ERROR)
        if not self._closed:
            self._supervisor.failed()
        return True
