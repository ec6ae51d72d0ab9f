"""Transports without a network: each call has the next of the outcomes that a test gives."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from seqserve._transport.connection import Method
from seqserve.errors import CallError

Outcome = Sequence[Message | CallError]
"""The messages of a call; an error ends it."""


@dataclass(eq=False)
class FakeCall:
    method: Method
    request: Any
    timeout_s: float | None
    outcome: Outcome
    is_cancelled: bool = False
    is_read: bool = False
    """Whether the call was read up to its status."""

    def __iter__(self) -> Iterator[Any]:
        for event in self.outcome:
            if isinstance(event, CallError):
                self.is_read = True
                raise event
            yield event
        self.is_read = True

    async def __aiter__(self) -> AsyncIterator[Any]:
        for event in self:
            yield event

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class Script:
    outcomes: list[Outcome]
    calls: list[FakeCall] = field(default_factory=list)
    is_closed: bool = False

    def call(self, method: Method, request: Message, timeout_s: float | None) -> FakeCall:
        call = FakeCall(method, request, timeout_s, self.outcomes[len(self.calls)])
        self.calls.append(call)
        return call


class FakeTransport(Script):
    def close(self) -> None:
        self.is_closed = True


class AsyncFakeTransport(Script):
    async def close(self) -> None:
        self.is_closed = True
