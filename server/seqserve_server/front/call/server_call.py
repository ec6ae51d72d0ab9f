"""The call that a handler serves: its record, and what it holds, model versions and memory.

A handler gets the call in place of gRPC's context, and passes it to all that take part in the
accounting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from google.protobuf.message import Message

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import Bound, Draining, ServiceError
from seqserve_server.front.call.answer_size import AnswerSize, held_bytes
from seqserve_server.front.call.fair_memory import MAX_WAIT_S, FairMemory, Reservation
from seqserve_server.front.call.status import failure_within
from seqserve_server.front.call.text_turns import Steps, TextTurns, at_once
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.telemetry.call_record import CallRecord

Result = TypeVar("Result")

# Texts that are read at once; they take about a millisecond.
_FEW_CHARACTERS = 1024
# What the tokens of a text take, of scripts whose characters have several each.
_CHARACTER_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResources:
    """What all calls of a server share."""

    answers: FairMemory = field(default_factory=FairMemory)
    """Memory for answers."""
    texts: FairMemory = field(default_factory=lambda: FairMemory(bound=Bound.TEXTS))
    """Memory for texts that are being read."""
    text_turns: TextTurns = field(default_factory=TextTurns)
    """Whose texts are read next."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a large answer is written, so that many that end together delay no other call."""


@dataclass(slots=True, kw_only=True)
class ServerCall(CallRecord):
    """One call, or one of the many requests of a call."""

    remaining_s: Callable[[], float | None] = lambda: None
    """Returns the time left until the deadline, in seconds; None if the call has none."""
    count_refusal: Callable[[str, Exception], None] = lambda model, error: None
    """Counts a request that ended with an error, in the metrics."""
    models: list[ServedModel] = field(default_factory=list)
    """The versions that the call was given; they stay loaded until its end."""
    resources: ServerResources = field(default_factory=ServerResources)
    """Those of the server."""
    reservation: Reservation | None = None
    """Memory for the answer; many requests of a call may share one."""
    reservations: set[Reservation] = field(default_factory=set)
    """Those of the call and of all its requests."""

    def resolve(self, repository: Repository, name: str, version: int) -> ServedModel:
        """Finds the version that the call asks for and keeps it loaded until the call ends.

        A call that asks again gets the version that it has, even if that is being unloaded. The id
        of the call is the key for the traffic weights.

        Raises:
            Draining: The server shuts down; a call that has its version goes on.
            ServiceError: As :meth:`Repository.resolve`.
        """
        kept = self._resolved(name or repository.default, version)
        model = kept or repository.resolve(name, version, self.request_id)
        self.model, self.version = model.manifest.name, model.manifest.version
        if kept is None:
            if repository.is_closed:
                raise Draining
            model.calls.enter()
            self.models.append(model)
        return model

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

    def _resolved(self, name: str, version: int) -> ServedModel | None:
        for model in self.models:
            if model.manifest.name == name and version in (0, model.manifest.version):
                return model
        return None

    def release_models(self) -> None:
        """Lets the versions go: the call, or the request, is over."""
        while self.models:
            self.models.pop().calls.leave()

    async def read(
        self,
        steps: Steps[Result],
        request: Message,
        num_characters: int,
        *,
        max_wait_s: float = MAX_WAIT_S,
    ) -> Result:
        """Reads the texts of a request: short ones at once, long ones in turns with other callers.

        Args:
            steps: Reads the texts.
            request: The request, which is held meanwhile.
            num_characters: Length of all its texts.
            max_wait_s: Longest wait for memory, in seconds.

        Raises:
            QueueFull: Texts of other calls are read for so long, or too many wait for it.
            Exception: What the steps raise.
        """
        if num_characters <= _FEW_CHARACTERS:
            return at_once(steps)
        memory = self.resources.texts
        reservation = await memory.reserve(
            self.client_id,
            min(num_characters * _CHARACTER_BYTES, memory.max_per_caller),
            held_bytes=2 * request.ByteSize(),
            max_wait_s=max_wait_s,
        )
        try:
            return await self.resources.text_turns.run(self.client_id, steps)
        finally:
            reservation.release()

    async def reserve(
        self,
        size: AnswerSize,
        request: Message,
        *,
        max_wait_s: float = MAX_WAIT_S,
        held_bytes: int = 0,
    ) -> None:
        """Waits until there is memory for an answer, unless the call has reserved it before.

        Args:
            size: Of the answer.
            request: The request, which is held meanwhile.
            max_wait_s: Longest wait, in seconds.
            held_bytes: What else is held meanwhile.

        Raises:
            InvalidRequest: It may need more than one caller can have.
            QueueFull: There is none for so long, or too many calls wait for it.
        """
        if self.reservation is not None:
            return
        memory = self.resources.answers
        self.reservation = await memory.reserve(
            self.client_id,
            size.checked(memory.max_per_caller),
            # gRPC holds a copy of the request.
            held_bytes=2 * request.ByteSize() + held_bytes,
            max_wait_s=max_wait_s,
        )
        self.reservations.add(self.reservation)

    def shrink_to(self, size: int) -> None:
        """Keeps only the memory that an answer of a size needs."""
        if self.reservation is not None:
            self.reservation.shrink(held_bytes(size))

    def shrink_one(self, max_size: int, size: int) -> None:
        """Keeps of the memory for one of many answers only what it needs."""
        if self.reservation is not None:
            self.reservation.shrink(self.reservation.size - 2 * max(0, max_size - size))

    def free_memory(self) -> None:
        """Gives back the memory of an answer that the caller has, or will not get."""
        if self.reservation is not None:
            self.reservation.release()
            self.reservations.discard(self.reservation)
            self.reservation = None

    def begin_request(self, began_s: float) -> ServerCall:
        """Begins one of many requests that resolves its own version and has memory of its own.

        Release it when it is answered, and free its memory when the caller has the answer.
        """
        return replace(self, began_s=began_s, facts={}, models=[], reservation=None)

    def take_model_of(self, request: ServerCall) -> None:
        """Takes the model and the version of one of many requests, if it has found them.

        Requests may name several models; the last one stands for the call.
        """
        if request.model:
            self.model, self.version = request.model, request.version

    def failed(self, error: ServiceError) -> generation_pb2.Failure:
        """Counts the failure of one of many requests, and gives it as a message."""
        self.count_refusal(self.model, error)
        return failure_within(error, self.request_id)

    def note_answer(self, response: generation_pb2.GenerateResponse) -> None:
        """Notes the facts of the answer to a call of one source."""
        if response.segments:
            self.facts["segments"] = len(response.segments)
        timings = response.timings
        self.facts.update(
            source_tokens=response.source_tokens,
            generated_tokens=response.generated_tokens,
            queue_ms=timings.queue_ms,
            first_token_ms=timings.first_token_ms,
        )

    def count_answer(self, response: generation_pb2.GenerateResponse) -> None:
        """Counts one of many sources; the response of one that failed is empty."""
        self.add(
            sources=1,
            source_tokens=response.source_tokens,
            generated_tokens=response.generated_tokens,
        )


_ROUNDING = 0.01
_JITTER_S = 0.005


def has_passed(remaining_s: float | None, elapsed_s: float) -> bool:
    """Tells whether a cancelled call had reached its deadline, if it has one."""
    return remaining_s is not None and remaining_s <= _JITTER_S + _ROUNDING * elapsed_s
