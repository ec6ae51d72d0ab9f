"""Calls that end together, plain and awaited, and the waits between their tries.

Whoever leaves many calls, or closes the client, ends what is under way; a call that waits to be
tried again must not sleep on.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Iterator

from google.protobuf.message import Message

from seqserve.errors import Cancelled
from seqserve.transport import AsyncCall, AsyncTransport, Call, Method, Transport


class CallGroup:
    """Calls that can all be cancelled at once, from any thread."""

    def __init__(self, transport: Transport) -> None:
        """Opens its calls through a transport, which outlives it."""
        self._transport = transport
        self._lock = threading.Lock()
        self._is_cancelled = threading.Event()
        self._members: weakref.WeakSet[Call | CallGroup] = weakref.WeakSet()

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> Call:
        """Sends a request, or one after the other.

        Raises:
            Cancelled: The group is cancelled.
        """
        self._check()
        call = self._transport.call(method, request, timeout_s)
        self._add(call)
        return call

    def group(self) -> CallGroup:
        """Makes a group for some of its calls, which can be cancelled before the others.

        Raises:
            Cancelled: The group is cancelled.
        """
        group = CallGroup(self._transport)
        self._add(group)
        return group

    def wait(self, seconds: float) -> None:
        """Returns when the time is over.

        Raises:
            Cancelled: The group is cancelled, or was so meanwhile.
        """
        self._is_cancelled.wait(seconds)
        self._check()

    def cancel(self) -> None:
        """Cancels the calls under way, wakes who waits, and refuses new calls."""
        with self._lock:
            self._is_cancelled.set()
            members = list(self._members)
        for member in members:
            member.cancel()

    def _add(self, member: Call | CallGroup) -> None:
        with self._lock:
            if not self._is_cancelled.is_set():
                self._members.add(member)
                return
        member.cancel()
        raise client_closed()

    def _check(self) -> None:
        if self._is_cancelled.is_set():
            raise client_closed()


class AsyncCallGroup:
    """The calls of an awaited client, which its transport cancels; belongs to one event loop."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Opens its calls through a transport, which outlives it."""
        self._transport = transport
        self._is_cancelled = False
        self._waiting: set[asyncio.Future[None]] = set()

    def call(
        self, method: Method, request: Message | AsyncIterator[Message], timeout_s: float | None
    ) -> AsyncCall:
        """Sends a request, or one after the other.

        Raises:
            Cancelled: The group is cancelled.
        """
        self._check()
        return self._transport.call(method, request, timeout_s)

    async def wait(self, seconds: float) -> None:
        """Returns when the time is over.

        Raises:
            Cancelled: The group is cancelled, or was so meanwhile.
        """
        self._check()
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            self._waiting.discard(waiting)
        self._check()

    def cancel(self) -> None:
        """Wakes who waits, and refuses new calls."""
        self._is_cancelled = True
        for waiting in self._waiting:
            waiting.cancel()

    def _check(self) -> None:
        if self._is_cancelled:
            raise client_closed()


def client_closed() -> Cancelled:
    """Gives the error for a call of a client that is closed."""
    return Cancelled("CANCELLED", "the client is closed")
