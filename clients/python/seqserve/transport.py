"""The seam between the client and the network.

A transport opens calls; a call gives its messages in turn and ends, or fails with a
:class:`~seqserve.errors.CallError`. A unary call is one that gives exactly one message; a call of
:attr:`Method.GENERATE_BULK` takes many requests, from an iterator. The client is written against
the protocols below, so that its tests need no socket; :mod:`seqserve.channel` has the ones that
speak gRPC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

MetadataSource: TypeAlias = Callable[[], Iterable[tuple[str, str]]]
"""Asked at every attempt for what is to go with the call."""


class Method(Enum):
    """What can be called."""

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
        """Gives the messages of the answer as they come."""

    def cancel(self) -> None:
        """Ends the call, from any thread; without effect on a call that is over."""


class Transport(Protocol):
    """Opens calls."""

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> Call:
        """Sends a request, or one after the other; None sets no deadline."""

    def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""


class AsyncCall(Protocol):
    """A call under way, awaited."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """Gives the messages of the answer as they come."""

    def cancel(self) -> None:
        """Ends the call; without effect on a call that is over."""


class AsyncTransport(Protocol):
    """Opens calls that are awaited."""

    def call(
        self, method: Method, request: Message | AsyncIterator[Message], timeout_s: float | None
    ) -> AsyncCall:
        """Sends a request, or one after the other; None sets no deadline."""

    async def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
