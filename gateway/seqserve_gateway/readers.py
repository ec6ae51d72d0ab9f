"""Processes that read and write documents, for a few callers at a time.

They start when they are first needed. One that a document has ended, by its limit or by the end of
its request, is replaced by the next job.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from asyncio import IncompleteReadError, subprocess
from collections.abc import Callable
from typing import Any

from seqserve_gateway.failure import Failure
from seqserve_gateway.reader import HEAD
from seqserve_gateway.reading import Unreadable
from seqserve_gateway.turns import Turns

_COMMAND = (sys.executable, "-P", "-m", "seqserve_gateway.reader")
_MOST_WAITING = 64
_BYTES_OF_REPLY = 4
"""Memory that a byte of a reply takes: as it came, as objects, and the answers to its passages."""


class Readers:
    """A few processes, in turns between callers; one of them is always there for another caller."""

    def __init__(self, processes: int = 2, cpu_s: int = 10, memory_bytes: int = 128 << 20) -> None:
        """Starts none yet.

        Args:
            processes: Most processes.
            cpu_s: Processor time for a job, in seconds.
            memory_bytes: Memory of a process.
        """
        self._limits = (cpu_s, memory_bytes)
        self._turns = Turns(processes, max(1, processes - 1), _MOST_WAITING)
        self._idle: list[subprocess.Process] = []
        self._command = [*_COMMAND, *map(str, self._limits)]

    async def outcome(self, caller: str, take_memory: Callable[[int], None], *job: Any) -> Any:
        """Returns what :func:`~seqserve_gateway.reading.outcome` returns for a job.

        Args:
            caller: Whose turn it takes.
            take_memory: Takes memory for what comes back, or raises.
            job: Name of a function of :mod:`.reading`, and its arguments.

        Raises:
            Failure: The job took too much time or memory, or too many of the caller wait.
        """
        async with self._turns.turn(caller):
            process = await self._process()
            is_last = True
            try:
                content, is_last = await _exchanged(process, pickle.dumps(job))
            except (IncompleteReadError, ConnectionError):
                raise self._too_much() from None
            finally:
                if is_last:
                    await _ended(process)
                else:
                    self._idle.append(process)
        take_memory(_BYTES_OF_REPLY * len(content))
        value, fault = pickle.loads(content)
        if fault:
            raise RuntimeError(fault)
        if isinstance(value, Unreadable):
            raise value
        return value

    async def close(self) -> None:
        """Ends the processes."""
        while self._idle:
            await _ended(self._idle.pop())

    async def _process(self) -> subprocess.Process:
        while self._idle:
            process = self._idle.pop()
            # The system may have ended it, where memory ran out.
            if process.returncode is None:
                return process
        try:
            return await asyncio.create_subprocess_exec(
                *self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError:
            reason = "no process can be started that reads documents"
            raise Failure("UNAVAILABLE", reason) from None

    def _too_much(self) -> Failure:
        cpu_s, memory_bytes = self._limits
        reason = f"takes more than {cpu_s} s or {memory_bytes >> 20} MiB to read; send it in parts"
        return Failure("INVALID_ARGUMENT", f"the document {reason}", 413)


async def _exchanged(process: subprocess.Process, job: bytes) -> tuple[bytes, bool]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.writelines([HEAD.pack(len(job), False), job])
    await process.stdin.drain()
    length, is_last = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
    return await process.stdout.readexactly(length), is_last


async def _ended(process: subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
