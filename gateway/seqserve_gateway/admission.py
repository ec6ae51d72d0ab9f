"""Bounds on requests: how many run and start, and how much memory and time they take.

Callers share places and memory. A caller may hold three times what it leaves free: alone it has
most, and another caller always finds room. Waiting callers take turns.
"""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from starlette.requests import Request

from seqserve_gateway.failure import Failure

MAX_MEMORY_BYTES = 96 << 20
"""Memory for all requests in progress, unless one alone may have more."""
BYTES_OF_BODY = 8
"""Memory that a byte of a body takes: as it came, as text, in the call, and in the answer. A text
with one rare character takes four bytes for each."""
BYTES_OF_VALUE = 300
"""Memory for each text of an array, in addition to its bytes and its answer."""
_MOST_OF_FREE = 3


def caller_of(request: Request) -> str:
    """Returns a caller's identity: its address, because anybody can make up a token."""
    return request.client.host if request.client else ""


class Shared:
    """A number of places, or bytes, that callers share."""

    def __init__(self, size: int) -> None:
        self.free = size
        """The free rest."""
        self._held: Counter[str] = Counter()

    def take(self, caller: str, size: int, code: str, what: str) -> None:
        """Takes a part for a caller.

        Raises:
            Failure: Nothing is left, with ``code``, or too little for a caller with so much.
        """
        if size > self.free:
            raise Failure(code, f"too many {what} are under way; wait for one to end")
        if size and self._held[caller] > _MOST_OF_FREE * (self.free - size):
            reason = f"too many {what} of this caller are under way; wait for one to end"
            raise Failure("RESOURCE_EXHAUSTED", reason)
        self.free -= size
        self._held[caller] += size

    def give_back(self, caller: str, size: int) -> None:
        """Frees what a caller has taken."""
        self.free += size
        self._held -= Counter({caller: size})


class Admission:
    """Admits calls by a token bucket, and up to a number at once; all callers share both."""

    def __init__(
        self,
        calls: int = 16,
        rate: float = 20.0,
        burst: float = 40,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with a full bucket.

        Args:
            rate: Calls a second, in the long run; ``math.inf`` for no limit.
            burst: Calls that may start at once after a pause.
        """
        self.is_open = self.is_whole = True
        """Whether calls are admitted, and whether all processes of the gateway have served."""
        self._places = Shared(calls)
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._filled_s = float(burst), clock()
        self._calls = calls
        self._ended_first: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Admits no further calls, and ends calls without a waiting client."""
        self.is_open = False
        for task in self._ended_first:
            task.cancel()

    @contextmanager
    def until_closed(self) -> Generator[None, None, None]:
        """Cancels the block when no further calls are admitted: none could ask for what it makes.

        Raises:
            Failure: That is so already.
        """
        self._check_open()
        task = asyncio.current_task()
        assert task is not None
        self._ended_first.add(task)
        try:
            yield
        finally:
            self._ended_first.discard(task)

    @property
    def is_ready(self) -> bool:
        """Whether all processes take calls."""
        return self.is_open and self.is_whole

    @property
    def in_progress(self) -> int:
        """Number of calls that have started and not ended."""
        return self._calls - self._places.free

    @contextmanager
    def call(self, caller: str = "") -> Generator[None, None, None]:
        """Holds a place for a call."""
        self._check_open()
        self._places.take(caller, 1, "RESOURCE_EXHAUSTED", "calls")
        try:
            self._pace()
            yield
        finally:
            self._places.give_back(caller, 1)

    def _check_open(self) -> None:
        if not self.is_open:
            raise Failure("UNAVAILABLE", "the gateway is shutting down")

    def _pace(self) -> None:
        if not math.isinf(self._rate):
            now_s = self._clock()
            filled = self._tokens + (now_s - self._filled_s) * self._rate
            self._tokens, self._filled_s = min(filled, self._burst), now_s
            if self._tokens < 1:
                reason = f"more than {self._rate:g} calls a second; wait a moment"
                raise Failure("RESOURCE_EXHAUSTED", reason)
            self._tokens -= 1


class Body:
    """The body of a request, and the memory that its request holds."""

    def __init__(self, memory: Shared, caller: str, content: bytes = b"") -> None:
        self.caller, self.content = caller, content
        self._memory, self._size = memory, 0

    def take_memory(self, size: int) -> None:
        """Takes memory before it is used, until the request ends; raises if there is too little."""
        self._memory.take(self.caller, size, "UNAVAILABLE", "long requests")
        self._size += size

    def give_back(self) -> None:
        """Frees the memory."""
        self._memory.give_back(self.caller, self._size)


class Bodies:
    """Reads the bodies of requests: each bounded in size and time, all together in memory."""

    def __init__(
        self,
        max_bytes: int = 1 << 20,
        max_memory_bytes: int = MAX_MEMORY_BYTES,
        timeout_s: float = 20.0,
    ) -> None:
        """Starts with no body.

        Args:
            max_memory_bytes: Memory for all requests that have no answer yet, at least for one.
            timeout_s: Time that a client has to send its body.
        """
        self._max_bytes, self._timeout_s = max_bytes, timeout_s
        self.memory = Shared(max(max_memory_bytes, 2 * BYTES_OF_BODY * max_bytes))
        """Memory left for requests."""

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncGenerator[Body, None]:
        """Reads a body and holds its share of the memory until the block ends.

        Raises:
            Failure: The body is too large, arrives too slowly, or finds no memory.
            ClientDisconnect: The client disconnected first.
        """
        body = Body(self.memory, caller_of(request))
        try:
            await self._read(request, body)
            yield body
        finally:
            body.give_back()

    async def _read(self, request: Request, body: Body) -> None:
        name = "content-encoding"
        if (encoding := request.headers.get(name, "")).lower() not in ("", "identity"):
            reason = f"{name}: {encoding} is not supported; send the body without compression"
            raise Failure("INVALID_ARGUMENT", reason, 415, field=name)
        declared = request.headers.get("content-length", "0")
        self._check(int(declared) if declared.isdecimal() else 0)
        content = bytearray()
        try:
            async with asyncio.timeout(self._timeout_s):
                async for chunk in request.stream():
                    self._check(len(content) + len(chunk))
                    body.take_memory(len(chunk) * BYTES_OF_BODY)
                    content += chunk
        except TimeoutError:
            reason = f"the body did not arrive within {self._timeout_s:g} s"
            raise Failure("DEADLINE_EXCEEDED", reason, 408) from None
        body.content = bytes(content)

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            reason = f"the body is longer than {self._max_bytes:,} bytes"
            raise Failure("INVALID_ARGUMENT", reason, 413)


class _Waiting(NamedTuple):
    size: int
    place: asyncio.Future[None]


class Turns:
    """Places for tasks; callers take turns at those that become free.

    So a caller waits for one task of each other caller, however many tasks they have.
    """

    def __init__(self, places: int, own_places: int, most_waiting: float = math.inf) -> None:
        """Starts with all places free; ``most_waiting`` limits the waiting tasks of one caller."""
        self._free, self._own, self._most_waiting = places, own_places, most_waiting
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiting]] = {}

    def check(self, caller: str) -> None:
        """Raises a failure if too many tasks of the caller wait already."""
        if len(self._waiting.get(caller, ())) >= self._most_waiting:
            raise Failure("RESOURCE_EXHAUSTED", "too many requests wait for their turn")

    @asynccontextmanager
    async def turn(self, caller: str, size: int = 1) -> AsyncGenerator[None, None]:
        """Waits for places, and holds them until the block ends.

        Args:
            size: How many places the task takes; no more than one caller may have.

        Raises:
            Failure: Too many tasks of the caller wait already.
        """
        task = _Waiting(size, asyncio.get_running_loop().create_future())
        self.check(caller)
        self._waiting.setdefault(caller, deque()).append(task)
        self._hand_out()
        try:
            await task.place
            yield
        finally:
            if task.place.cancelled():
                self._leave(caller, task)
            else:
                self._free += size
                self._running -= Counter({caller: size})
            self._hand_out()

    def _hand_out(self) -> None:
        while (found := next(self._allowed(), None)) is not None and found[1].size <= self._free:
            caller, task = found
            self._free -= task.size
            self._running[caller] += task.size
            self._leave(caller, task)
            task.place.set_result(None)

    def _allowed(self) -> Iterator[tuple[str, _Waiting]]:
        for caller, waiting in self._waiting.items():
            # A task that is cancelled may not have left yet.
            task = next((each for each in waiting if not each.place.done()), None)
            if task is not None and self._running[caller] + task.size <= self._own:
                yield caller, task

    def _leave(self, caller: str, task: _Waiting) -> None:
        # Those that stay come after the tasks of all others.
        waiting = self._waiting.pop(caller)
        waiting.remove(task)
        if waiting:
            self._waiting[caller] = waiting
