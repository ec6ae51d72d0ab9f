"""Processes that read and write documents, for a few callers at a time.

They start when they are first needed. One that a document has ended, by its limit or by the end of
its request, is replaced by the next job. The event loop does not start them: it would fork, and the
fork of a process in which gRPC runs may crash before it becomes another program.
"""

import asyncio
import contextlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from seqserve_gateway.admission import Turns
from seqserve_gateway.failure import Failure
from seqserve_gateway.reader import HEAD
from seqserve_gateway.reading import Unreadable

_COMMAND = (sys.executable, "-P", "-m", "seqserve_gateway.reader")
_MOST_WAITING = 64
_BYTES_OF_REPLY = 4
"""Memory that a byte of a reply takes: as it came, as objects, and the answers to its passages."""


class Readers:
    """A few processes, in turns between callers; one is always free for another caller."""

    def __init__(self, processes: int = 2, cpu_s: int = 10, memory_bytes: int = 128 << 20) -> None:
        """Starts none yet; ``cpu_s`` is for each job, the memory for each process."""
        self._limits = (cpu_s, memory_bytes)
        self._turns = Turns(processes, max(1, processes - 1), _MOST_WAITING)
        self._threads = ThreadPoolExecutor(processes, "seqserve-reader")
        self._idle: list[_Process] = []

    async def outcome(self, caller: str, take_memory: Callable[[int], None], *job: Any) -> Any:
        """Returns what :func:`~seqserve_gateway.reading.outcome` returns for a job.

        Args:
            take_memory: Takes memory for what comes back, or raises.
            job: Name of a function of :mod:`.reading`, and its arguments.

        Raises:
            Failure: The job took too much time or memory, or too many of the caller wait.
        """
        async with self._turns.turn(caller):
            reply = await self._reply_to(pickle.dumps(job))
        if not reply:
            cpu_s, memory_bytes = self._limits
            reason = f"takes more than {cpu_s} s or {memory_bytes >> 20} MiB to read"
            details = f"the document {reason}; send it in parts"
            raise Failure("INVALID_ARGUMENT", details, 413)
        take_memory(_BYTES_OF_REPLY * len(reply))
        value, fault = pickle.loads(reply)
        if fault:
            raise RuntimeError(fault)
        if isinstance(value, Unreadable):
            raise value
        return value

    def close(self) -> None:
        """Ends the processes."""
        while self._idle:
            self._idle.pop().end()
        self._threads.shutdown(wait=False)

    async def _reply_to(self, job: bytes) -> bytes:
        process = self._idle.pop() if self._idle else _Process(self._limits)
        if not process.is_running:
            # The system has ended it, where memory ran out.
            process.end()
            process = _Process(self._limits)
        try:
            loop = asyncio.get_running_loop()
            reply = await loop.run_in_executor(self._threads, process.reply_to, job)
        except asyncio.CancelledError:
            process.kill()
            with contextlib.suppress(RuntimeError):
                # The job is over and the threads may have ended.
                self._threads.submit(process.end)
            raise
        if process.is_running:
            self._idle.append(process)
        return reply


class _Process:
    def __init__(self, limits: tuple[int, int]) -> None:
        command = [*_COMMAND, *map(str, limits)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError:
            reason = "no process can be started that reads documents"
            raise Failure("UNAVAILABLE", reason) from None
        self.kill = self._process.kill

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def reply_to(self, job: bytes) -> bytes:
        """Returns the reply to a job; nothing if the process ended before it."""
        reply, length, is_last = b"", 1, True
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(HEAD.pack(len(job), False) + job)
            self._process.stdin.flush()
            head = self._process.stdout.read(HEAD.size)
            length, is_last = HEAD.unpack(head) if len(head) == HEAD.size else (0, True)
            reply = self._process.stdout.read(length)
            is_last |= len(reply) < length
        if is_last:
            self.end()
        return reply if len(reply) == length else b""

    def end(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()
