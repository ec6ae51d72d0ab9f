"""The protocol between the clients and the network.

A transport opens calls; a call yields its messages and ends, or fails with a
:class:`~seqserve.errors.CallError`. A unary call yields exactly one message; a call of
:attr:`Method.GENERATE_BULK` sends the requests of an iterator. The tests of the clients implement
these protocols without a socket, ``channel`` and ``aio_channel`` implement them with gRPC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

from seqserve.errors import Cancelled

MetadataSource: TypeAlias = Callable[[], Iterable[tuple[str, str]]]
"""Returns the metadata of a call; called for every attempt."""


class Method(Enum):
    """The methods of both services."""

    GENERATE = "Generate"
    GENERATE_STREAM = "GenerateStream"
    GENERATE_BATCH = "GenerateBatch"
    GENERATE_BULK = "GenerateBulk"
    SCORE = "Score"
    ATTENTION = "Attention"
    LIST_MODELS = "ListModels"
    GET_MODEL = "GetModel"
    LOAD_MODEL = "LoadModel"
    UNLOAD_MODEL = "UnloadModel"
    SET_TRAFFIC = "SetTraffic"


class Call(Protocol):
    """A call under way."""

    def __iter__(self) -> Iterator[Any]:
        """Yields the response messages as they arrive."""

    def cancel(self) -> None:
        """Cancels the call, from any thread; has no effect on one that has ended."""


class Transport(Protocol):
    """Opens calls."""

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> Call:
        """Sends one request, or those of an iterator; None sets no deadline."""

    def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""


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
        """Sends one request, or those of an iterator; None sets no deadline."""

    async def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""


def client_closed() -> Cancelled:
    """Returns the error for a call of a closed client."""
    return Cancelled("CANCELLED", "the client is closed")
