"""State of one gRPC call: metrics record, leased model versions, reserved memory.

A handler gets the call instead of gRPC's context, and passes it to all functions that take part in
the accounting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf.message import Message

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.overload.memory import MAX_WAIT_S, AnswerSize, FairMemory, Reservation
from seqserve_server.front.overload.turns import TextScheduler
from seqserve_server.front.telemetry.call_record import CallRecord, failure_within

# Of the memory of a caller, for requests of a call that are read together.
_PARTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResources:
    """State that all calls of a server share."""

    answers: FairMemory = field(default_factory=FairMemory)
    texts: TextScheduler = field(default_factory=TextScheduler)
    """The turns of callers whose texts are to be read."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a large answer is written, so that many that end together delay no other call."""


@dataclass(slots=True, kw_only=True)
class ServerCall(CallRecord):
    """One call, or one of the many requests of a call."""

    remaining_s: Callable[[], float | None] = lambda: None
    """Returns the time left until the deadline, in seconds; None if the call has none."""
    count_refusal: Callable[[str, Exception], None] = lambda model, error: None
    """Counts a request that ended with an error, in the metrics."""
    count_use: Callable[[int, int], None] = lambda characters, tokens: None
    """Counts the characters and tokens of a source that was answered, if callers have tokens."""
    quota_error: Callable[[], ServiceError | None] = lambda: None
    """Returns the error if a quota of the caller's token is used up."""
    models: list[ServedModel] = field(default_factory=list)
    """The versions that the call was given; they stay loaded until its end."""
    resources: ServerResources = field(default_factory=ServerResources)
    held: Reservation | None = None
    is_one_of_many: bool = False
    """Whether the call has more requests."""
    reservations: set[Reservation] = field(default_factory=set)
    """Memory of the call and of all its requests, until gRPC no longer holds an answer."""

    def spec_fields(self) -> dict[str, Any]:
        """Collects the fields of an engine's request that come from the gRPC call."""
        remaining_s = self.remaining_s()
        return {
            "arrived_s": self.began_s,
            "deadline_s": None if remaining_s is None else time.monotonic() + remaining_s,
            "client_id": self.client_id,
            "call_id": self.request_id,
            "flow_id": self.connection,
        }

    def used(self, characters: int, response: generation_pb2.GenerateResponse) -> None:
        """Counts a source of so many characters, and its answer."""
        self.count_use(characters, response.source_tokens + response.generated_tokens)

    def release_models(self) -> None:
        """Lets the versions go: the call, or the request, is over."""
        while self.models:
            self.models.pop().calls.leave()

    async def reserve(
        self,
        size: AnswerSize,
        request: Message,
        *,
        max_wait_s: float = MAX_WAIT_S,
        held_bytes: int = 0,
    ) -> None:
        """Waits until there is memory for an answer, which the call holds until it is delivered.

        Meanwhile it holds the request, and ``held_bytes`` more.
        """
        memory, most = self.resources.answers, self.resources.answers.max_per_caller
        if self.is_one_of_many and isinstance(request, generation_pb2.GenerateBatchRequest):
            # Large answers need not wait for each other's memory.
            most //= _PARTS
        self.held = await memory.reserve(
            self.client_id,
            size.checked(most),
            held_bytes=self.uncounted_bytes(request) + held_bytes,
            max_wait_s=max_wait_s,
        )
        self.reservations.add(self.held)

    def uncounted_bytes(self, request: Message) -> int:
        """Returns what a request takes, one of many; the only one of a call is counted already."""
        # gRPC holds a copy.
        return 2 * request.ByteSize() if self.is_one_of_many else 0

    def release_memory(self) -> None:
        """Releases the memory of an answer that the caller has received, or will not receive."""
        if self.held is not None:
            self.held.release()
            self.reservations.discard(self.held)

    def child(self) -> ServerCall:
        """Begins one of many requests of the call, with its own model and memory.

        Release its models when it is answered, and its memory when the caller has the answer.
        """
        return replace(
            self,
            began_s=time.monotonic(),
            is_one_of_many=True,
            model="",
            version=0,
            facts={},
            models=[],
            held=None,
        )

    def adopt_model(self, request: ServerCall) -> None:
        """Takes the model of one of many requests, if it has one; the last one counts."""
        if request.model:
            self.model, self.version = request.model, request.version

    def failed(self, error: ServiceError) -> generation_pb2.Failure:
        """Counts the failure of one of many requests, and gives it as a message."""
        self.count_refusal(self.model, error)
        return failure_within(error, self.request_id)
