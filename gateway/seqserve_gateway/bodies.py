"""Reads the bodies of requests, each of bounded size and time, all together of bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.requests import Request

from seqserve_gateway.failure import Failure

MAX_TOTAL_BYTES = 64 << 20
"""Memory for the bodies of all requests under way, unless one alone may have more."""


class Bodies:
    """Bounds what the bodies of all requests under way hold."""

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
        """Memory that is left for bodies."""

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Reads a body and holds its share of the memory until the block ends.

        Raises:
            Failure: The body is too large, comes too slowly, or finds no memory.
            ClientDisconnect: The client went away first.
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
