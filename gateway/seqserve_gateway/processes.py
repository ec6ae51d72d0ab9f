"""The processes of a gateway and the port that they share, on which the kernel spreads connections.

A parent holds the port, starts children that listen there, and ends them. The standard input of a
child is a socket to its parent: a child tells that it serves; the parent tells that all do, and
when to drain. If the socket ends, the other side has ended.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from prometheus_client import Metric, ProcessCollector, multiprocess
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from seqserve.address import held_port, is_taken
from seqserve.errors import OptionError
from seqserve.processes import leave_interrupts, signals_held

ALL_SERVE, DRAIN = b"a", b"d"
"""Messages from a parent to its children."""
_SERVES = b"s"
BACKLOG = 1024
"""Connections that may wait to be accepted."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _STEADY_S = 0.5, 30.0, 60.0
"""Before a child is started again. The pause doubles, until a child has run for a while."""
_GRACE_S = 10.0
"""Time after the drain timeout until a child is killed."""
_MEMORY = Path("/dev/shm")

Command: TypeAlias = Callable[[int, Path], Sequence[str]]
"""The command line of a child, by its number and the folder that all share."""


def listener_at(host: str, port: int, option: str, *, is_shared: bool = False) -> socket.socket:
    """Opens a socket that listens, alone or at a shared port; at ``::`` by IPv4 too."""
    try:
        return socket.create_server(
            (host, port),
            family=socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0],
            backlog=BACKLOG,
            reuse_port=is_shared,
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise _unavailable(host, port, option, error) from None


def shared_port(host: str, port: int, option: str) -> socket.socket:
    """Takes a port, 0 for any free one, at which processes of this user can listen.

    Raises:
        OptionError: The port is taken, or this system does not spread connections.
    """
    if sys.platform != "linux":
        raise OptionError("--processes: only Linux spreads connections over several; leave it at 1")
    try:
        # A server that shares its port would let this one in.
        if port and is_taken(host, port):
            raise OSError(errno.EADDRINUSE, "")
        return held_port(host, port)
    except OSError as error:
        raise _unavailable(host, port, option, error) from None


def _unavailable(host: str, port: int, option: str, error: OSError) -> OptionError:
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        reason = f"another server does; {option} 0 takes any free one"
    return OptionError(f"{option}: cannot listen on {host}:{port}: {reason}")


class Parent:
    """The parent of this process."""

    def __init__(self, folder: Path) -> None:
        """Leaves signals to the parent; removes the folder if the parent has been killed."""
        leave_interrupts(signal.SIGTERM)
        self.folder = folder
        """State that the parent shares with its children."""
        self._socket = socket.socket(fileno=0)

    def tell(self, obey: Callable[[bytes], None]) -> None:
        """Tells the parent that this process serves, and passes its messages to a function."""
        asyncio.get_running_loop().add_reader(self._socket, self._listen, obey)
        self._socket.send(_SERVES)

    def _listen(self, obey: Callable[[bytes], None]) -> None:
        words = b""
        with contextlib.suppress(ConnectionError):
            words = self._socket.recv(16)
        if not words:
            shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(1)
        for word in words:
            obey(bytes([word]))


class Children:
    """Processes that share a port and a private folder; one that ends is started again."""

    def __init__(
        self,
        count: int,
        command: Command,
        all_serve: Callable[[], None],
        drain_timeout_s: float,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        """Starts none yet.

        Args:
            all_serve: Called once, when all serve.
            drain_timeout_s: Time that they have to end after the first signal.
            first_pause_s: Time before one that has ended is started again.
        """
        self._count, self._command, self._all_serve = count, command, all_serve
        self._drain_timeout_s, self._first_pause_s = drain_timeout_s, first_pause_s
        self._awaited = set(range(count))
        """Those that have not served yet."""
        self._running: dict[int, tuple[subprocess.Popen[bytes], asyncio.StreamWriter]] = {}
        self._is_draining = asyncio.Event()
        self._status = 0

    def run(self) -> int:
        """Runs until SIGTERM or Ctrl-C, and drains all; a second signal kills them.

        Returns:
            The exit status: 0 if each has drained. One that ends before all have served ends the
            others.
        """
        return asyncio.run(self._run())

    async def _run(self) -> int:
        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(each, self._end, 128 + each)
        with _private_folder() as folder:
            await asyncio.gather(*(self._keep(each, Path(folder)) for each in range(self._count)))
        return self._status

    def _end(self, status: int) -> None:
        if self._is_draining.is_set():
            self._kill(status)
        else:
            self._drain()

    def _drain(self) -> None:
        self._is_draining.set()
        last_s = self._drain_timeout_s + _GRACE_S
        asyncio.get_running_loop().call_later(last_s, self._kill, 1)
        self._tell(DRAIN)

    def _kill(self, status: int) -> None:
        self._status = self._status or status
        for process, _ in self._running.values():
            process.kill()

    def _tell(self, word: bytes) -> None:
        for _, writer in self._running.values():
            writer.write(word)

    async def _keep(self, number: int, folder: Path) -> None:
        pause_s = self._first_pause_s
        while not self._is_draining.is_set():
            begun_s = time.monotonic()
            status = await self._ended(number, folder)
            if self._is_draining.is_set():
                self._status = self._status or status
                return
            outcome = f"process {number} of the gateway has ended with status {status}"
            if self._awaited:
                _report(f"{outcome} before all served")
                self._status = status or 1
                self._drain()
                return
            if time.monotonic() - begun_s >= _STEADY_S:
                pause_s = self._first_pause_s
            _report(f"{outcome}; another one starts in {pause_s:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_draining.wait(), pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _ended(self, number: int, folder: Path) -> int:
        try:
            async with self._child(number, folder) as (process, reader):
                # A child that is killed may leave words unread.
                with contextlib.suppress(ConnectionError):
                    if await reader.read(1) == _SERVES:
                        self._serves(number)
                        await reader.read()
                status = await asyncio.to_thread(process.wait)
        except OSError as error:
            _report(f"no process can be started: {error.strerror}")
            return 1
        # Its counts stay; what it held is freed.
        multiprocess.mark_process_dead(number, folder)  # type: ignore[no-untyped-call]
        return status if status >= 0 else 128 - status

    @asynccontextmanager
    async def _child(
        self, number: int, folder: Path
    ) -> AsyncGenerator[tuple[subprocess.Popen[bytes], asyncio.StreamReader], None]:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            with theirs, signals_held():
                process = subprocess.Popen(self._command(number, folder), stdin=theirs.fileno())
            self._running[number] = process, writer
            if self._is_draining.is_set():
                writer.write(DRAIN)
            yield process, reader
        finally:
            self._running.pop(number, None)
            writer.close()

    def _serves(self, number: int) -> None:
        if not self._awaited:
            self._running[number][1].write(ALL_SERVE)
            return
        self._awaited.discard(number)
        if not self._awaited:
            self._all_serve()
            self._tell(ALL_SERVE)


def _private_folder() -> tempfile.TemporaryDirectory[str]:
    # A folder in memory, if the system has one, because it holds translated files.
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    try:
        return tempfile.TemporaryDirectory(
            prefix="seqserve-gateway-", dir=place, ignore_cleanup_errors=True
        )
    except OSError as error:
        reason = f"no folder for what they share can be made: {error.strerror}"
        raise OptionError(f"--processes: {reason}") from None


def _report(line: str) -> None:
    print(f"seqserve: {line}", file=sys.stderr, flush=True)


class FamilyCollector(Collector):
    """The metrics of a process, added up over the parent of this one and its children."""

    def collect(self) -> Iterable[Metric]:
        """Returns the sums now."""
        parent, children = os.getppid(), [str(os.getpid())]
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
        metrics: dict[str, Metric] = {}
        for number in [parent, *map(int, children)]:
            for metric in ProcessCollector(pid=lambda: number, registry=None).collect():  # noqa: B023
                known = metrics.setdefault(metric.name, metric)
                if known is not metric:
                    known.samples = [_joined(*known.samples, *metric.samples)]
        return metrics.values()


def _joined(one: Sample, other: Sample) -> Sample:
    # The family is as old as its first process.
    join = min if one.name == "process_start_time_seconds" else sum
    return one._replace(value=join((one.value, other.value)))
