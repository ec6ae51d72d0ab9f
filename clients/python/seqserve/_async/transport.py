"""The protocol between the asyncio client and the network.

A transport opens calls; a call yields its messages and ends, or fails with a
:class:`~seqserve.errors.CallError`. A unary call yields exactly one message; a call of
:attr:`Method.GENERATE_BULK` sends the requests of an iterator. :mod:`seqserve._transport`
implements the protocol with gRPC, the tests of the client without a socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from google.protobuf.message import Message

from seqserve._transport.method import Method


class AsyncCall(Protocol):
    """A call under way on an event loop."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """Yields the response messages as they arrive."""

    def cancel(self) -> None:
        """Cancels the call; has no effect on one that has ended."""


class AsyncTransport(Protocol):
    """Opens calls on an event loop."""

    def call(
        self, method: Method, request: Message | AsyncIterator[Message], timeout_s: float | None
    ) -> AsyncCall:
        """Sends one request, or the requests of an iterator; None sets no deadline."""

    async def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
