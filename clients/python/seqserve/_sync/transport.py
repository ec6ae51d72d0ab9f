# Generated from seqserve/_async/transport.py by `make clients`; do not edit.
"""The protocol between the blocking client and the network.

A transport opens calls; a call yields its messages and ends, or fails with a
:class:`~seqserve.errors.CallError`. A unary call yields exactly one message; a call of
:attr:`Method.GENERATE_BULK` sends the requests of an iterator. :mod:`seqserve._transport`
implements the protocol with gRPC, the tests of the client without a socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from google.protobuf.message import Message

from seqserve._transport.method import Method


class Call(Protocol):
    """A call under way."""

    def __iter__(self) -> Iterator[Any]:
        """Yields the response messages as they arrive."""

    def cancel(self) -> None:
        """Cancels the call; has no effect on one that has ended."""


class Transport(Protocol):
    """Opens calls."""

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> Call:
        """Sends one request, or the requests of an iterator; None sets no deadline."""

    def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
