"""What is behind every form: one client of the server, and processes that read documents.

A call of the client carries the metadata of the HTTP request in whose task it is made: a variable
of the context holds it, and the client reads it for every attempt.

The processes start when they are first needed. One that a document has ended, by its limit or by
the end of its request, is replaced by the next job. The event loop does not start them: it would
fork, and the fork of a process in which gRPC runs may crash before it becomes another program.
"""

import asyncio
import contextlib
import pickle
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from seqserve import AsyncClient
from seqserve._async.calls import CallGroup, messages_of
from seqserve._transport.channels import AsyncGrpcTransport
from seqserve._transport.connection import Connection, Method
from seqserve.address import is_local
from seqserve.arguments import MAX_MESSAGE_BYTES
from seqserve.auth import metadata_of
from seqserve.errors import OptionError
from seqserve.retry import Attempts, Availability, RetryPolicy
from seqserve.tls import TLS
from seqserve_gateway.admission import Turns
from seqserve_gateway.failure import Failure
from seqserve_gateway.reader import HEAD
from seqserve_gateway.reading import Unreadable

T = TypeVar("T")
Pairs = tuple[tuple[str, str], ...]
METADATA: ContextVar[Pairs] = ContextVar("metadata", default=())
"""Metadata of the calls that the current task makes."""
_MOST_TEXTS, _MOST_OWN_TEXTS = 320, 256
"""Texts of all arrays, and of the arrays of one caller, on the server: no more than its slots and
the share of its queue that it gives a gateway."""
_LEAST_TEXTS = 128
"""A batch of an array takes its places at once."""
_READERS = 2
_RECENT_S = 5.0
_MOST_RECENT = 16
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


class Upstream:
    """A client of the server, and its calls as messages of ``seqserve.v1``."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 30.0,
        tls: TLS | None = None,
        token: str | None = None,
        retry: RetryPolicy | None = None,
        connections: int | None = None,
        processes: int = 1,
    ) -> None:
        """Takes the arguments of :class:`~seqserve.AsyncClient`, for one of several processes.

        Callers without a token may use ``token``.
        """
        self.timeout_s = timeout_s
        """Time for a request that asks for no other."""
        texts = (_MOST_TEXTS, _MOST_OWN_TEXTS)
        self.turns = Turns(*(max(each // processes, _LEAST_TEXTS) for each in texts))
        """For the batches of arrays."""
        self.readers = Readers(max(_READERS // processes, 1))
        """For documents."""
        self._recent: dict[Hashable, tuple[float, Any]] = {}
        self.is_private = tls is not None or is_local(target)
        """Whether tokens of callers may be sent: by TLS, or to this machine."""
        self._own = metadata_of(token, is_private=self.is_private)
        connection = Connection(
            target, MAX_MESSAGE_BYTES, tls, metadata=self._metadata, connections=connections
        )
        transport = AsyncGrpcTransport(connection)
        self._retry = retry or RetryPolicy()
        self._calls, self._availability = CallGroup(transport), Availability(target)
        self.client = AsyncClient(
            target, timeout_s=timeout_s, retry=self._retry, transport=transport
        )

    async def recent(self, key: Hashable, listing: Callable[[], Awaitable[T]]) -> T:
        """Returns a listing of the last seconds for a key, or a new one."""
        until_s, answer = self._recent.pop(key, (0.0, None))
        if until_s <= time.monotonic():
            answer = await listing()
            until_s = time.monotonic() + _RECENT_S
        self._recent[key] = (until_s, answer)
        while len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        return cast(T, answer)

    def messages(
        self, method: Method, request: Message, timeout_s: float
    ) -> AsyncGenerator[Any, None]:
        """Yields the messages of a call, exactly as the server sends them.

        Closing the generator cancels the call.
        """
        attempts = Attempts(self._retry, timeout_s, self._availability)
        return messages_of(self._calls, method, request, attempts)

    def authorization(self, token: str | None) -> Pairs:
        """Returns the metadata for a caller's token; without one, for the gateway's own.

        A token is left out where it would cross the network in clear: a server that wants one then
        refuses the call.
        """
        if token is None:
            return self._own
        if not self.is_private:
            return ()
        try:
            return metadata_of(token, is_private=True)
        except OptionError:
            raise Failure("UNAUTHENTICATED", "no valid token") from None

    async def close(self) -> None:
        """Cancels the calls in progress and closes the channel."""
        self._calls.cancel()
        self.readers.close()
        await self.client.close()

    def _metadata(self) -> Pairs:
        # Without a request, as for a probe, the gateway calls for itself.
        return METADATA.get() or self._own
