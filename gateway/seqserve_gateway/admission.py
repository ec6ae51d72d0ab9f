"""Bounds on requests: how many run and start, and how much memory and time their bodies take."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

from starlette.requests import Request

from seqserve_gateway.failure import Failure

MAX_TOTAL_BYTES = 64 << 20
"""Memory for the bodies of all requests in progress, unless one alone may have more."""


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
            calls: Maximum number of calls at once.
            rate: Calls a second, in the long run; ``math.inf`` for no limit.
            burst: Calls that may start at once after a pause.
            clock: Seconds, from any origin.
        """
        self.is_open = True
        """Whether calls are admitted; set to False when the process is to end."""
        self.free = calls
        """Number of calls that may still start."""
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._filled_s = float(burst), clock()
        self._calls = calls

    @property
    def in_progress(self) -> int:
        """Number of calls that have started and not ended."""
        return self._calls - self.free

    @contextmanager
    def call(self) -> Generator[None, None, None]:
        """Holds a place for a call."""
        self._admit()
        self.free -= 1
        try:
            yield
        finally:
            self.free += 1

    def _admit(self) -> None:
        if not self.is_open:
            raise Failure("UNAVAILABLE", "the gateway is shutting down")
        if not self.free:
            reason = "too many calls are under way; wait for one to end"
            raise Failure("RESOURCE_EXHAUSTED", reason)
        if not math.isinf(self._rate):
            now_s = self._clock()
            filled = self._tokens + (now_s - self._filled_s) * self._rate
            self._tokens, self._filled_s = min(filled, self._burst), now_s
            if self._tokens < 1:
                reason = f"more than {self._rate:g} calls a second; wait a moment"
                raise Failure("RESOURCE_EXHAUSTED", reason)
            self._tokens -= 1


class Bodies:
    """Reads the bodies of requests: each bounded in size and time, all together in memory."""

    def __init__(
        self,
        max_bytes: int = 1 << 20,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        timeout_s: float = 20.0,
    ) -> None:
        """Starts with no body.

        Args:
            max_bytes: Maximum size of one body.
            max_total_bytes: Maximum size of all bodies of requests that have no answer yet.
            timeout_s: Time that a client has to send its body.
        """
        self._max_bytes, self._timeout_s = max_bytes, timeout_s
        self.free_bytes = max_total_bytes
        """Memory left for bodies."""

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Reads a body and holds its share of the memory until the block ends.

        Raises:
            Failure: The body is too large, arrives too slowly, or finds no memory.
            ClientDisconnect: The client disconnected first.
        """
        body = bytearray()
        try:
            await self._read(request, body)
            yield bytes(body)
        finally:
            self.free_bytes += len(body)

    async def _read(self, request: Request, body: bytearray) -> None:
        declared = request.headers.get("content-length", "0")
        self._check(int(declared) if declared.isdecimal() else 0)
        try:
            async with asyncio.timeout(self._timeout_s):
                async for chunk in request.stream():
                    self._check(len(body) + len(chunk))
                    if len(chunk) > self.free_bytes:
                        raise Failure("UNAVAILABLE", "too many bodies are under way")
                    body += chunk
                    self.free_bytes -= len(chunk)
        except TimeoutError:
            reason = f"the body did not arrive within {self._timeout_s:g} s"
            raise Failure("DEADLINE_EXCEEDED", reason, 408) from None

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            reason = f"the body is longer than {self._max_bytes:,} bytes"
            raise Failure("INVALID_ARGUMENT", reason, 413)
