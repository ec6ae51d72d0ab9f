"""The request of a part to an engine, as a future of what becomes of its answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, Self, TypeAlias, TypeVar

from seqserve_server.contract.errors import DeadlinePassed, QueueFull, ServiceError
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Progress,
    TargetScored,
    Timeline,
)
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.front.engine_client.engine import AnsweringEngine, QueueKey
from seqserve_server.front.models.answer_cache import VersionAnswers
from seqserve_server.front.telemetry.call_record import CallRecord, EndedRequest, has_passed

Answer: TypeAlias = Finished | TargetScored
Result = TypeVar("Result")

UNTHROTTLED_STREAMS = 16
"""Requests in flight on an engine up to which every token of a stream is sent at once."""
INTERVAL_S = 0.05
"""How long tokens are gathered otherwise, from when a message was due: a message costs far more
than its tokens. The first tokens of a stream never wait."""


class EngineCall(asyncio.Future[Result]):
    """One request; cancelling it cancels the request.

    It needs no task: events come in the event loop, and the last one makes the result. An answer
    that needs its attention is submitted again before. Tokens that nobody has fetched yet are kept
    in one list, so a slow reader costs no more than the tokens of its answer.
    """

    def __init__(
        self,
        engine: AnsweringEngine,
        spec: Spec,
        record: CallRecord,
        make: Callable[[EngineCall[Any]], Result],
        wants_attention: Callable[[Finished], bool] | None = None,
    ) -> None:
        """Does nothing before :meth:`begin`; ``make`` makes the result of an answered call.

        ``wants_attention`` tells of an answer whether its attention, which the request does not ask
        for, makes it better. The record of the call leaves that out.
        """
        super().__init__()
        self.spec = spec
        self.timeline = Timeline(arrived_s=spec.arrived_s)
        """When the request reached each stage."""
        self.answer: Any = None
        """The whole answer, once it is there: :class:`Finished`, or :class:`TargetScored`."""
        self._engine, self._record = engine, record
        self._make, self._wants_attention = make, wants_attention
        self._sent, self._is_whole = spec, False
        self._retry: asyncio.TimerHandle | None = None
        self._request_id: int | None = None
        # Only for streams.
        self._news: asyncio.Event | None = None
        self._due_s = 0.0
        self._unread: list[int] = []

    def begin(self) -> Self:
        """Submits the request; one of many of a call again, when advised, if the queue is full."""
        self._submit(self.spec)
        return self

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancels the request, if it has not ended."""
        if not self.done():
            if self._retry is not None:
                self._retry.cancel()
            if self._request_id is not None:
                now_s, deadline_s = time.monotonic(), self.spec.deadline_s
                is_late = deadline_s is not None and has_passed(
                    deadline_s - now_s, now_s - self.spec.arrived_s
                )
                self._engine.cancel(self._request_id, is_late=is_late)
        return super().cancel(msg)

    async def progress(self) -> AsyncGenerator[list[int], None]:
        """Submits the request and yields new tokens as they come, until the answer is whole."""
        self._news = asyncio.Event()
        try:
            self.begin()
            while self.answer is None and not self.done():
                await self._news.wait()
                self._news.clear()
                tokens, self._unread = self._unread, []
                if tokens:
                    yield tokens
            await self
        finally:
            self.cancel()

    def _submit(self, spec: Spec) -> None:
        self._sent = spec
        try:
            self._request_id = self._engine.submit(spec, self._receive)
        except ServiceError as error:
            self._failed(error)

    def _receive(self, event: Event, timeline: Timeline | None) -> None:
        if isinstance(event, Progress):
            self._unread += event.token_ids
            if self._news is not None and self._is_due():
                self._news.set()
            return
        self._request_id = None
        if timeline is not None and self.answer is None:
            # The times stay from decoding.
            self.timeline = timeline
        if isinstance(event, Failed):
            self._failed(event.error)
        else:
            self._answered(event)
        if self._news is not None:
            self._news.set()

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if self._engine.pending > UNTHROTTLED_STREAMS and now_s < self._due_s:
            return False
        self._due_s = now_s + INTERVAL_S
        return True

    def _answered(self, answer: Answer) -> None:
        spec, is_first, self.answer = self.spec, self.answer is None, answer
        if self._is_whole:
            self._finish()
        elif is_first and isinstance(spec, GenerateSpec) and spec.lacks_attention(self.timeline):
            self._submit(replace(spec, answer=self.answer))
        else:
            self._whole()

    def _whole(self) -> None:
        """Ends the call, once its answer has the attention that makes it better."""
        self._is_whole = True
        self._record.ended(EndedRequest(self.spec, self.timeline, self.answer))
        try:
            is_better = self._wants_attention is not None and self._wants_attention(self.answer)
        except BaseException as error:
            self._fail(error)
            return
        if is_better:
            spec = self.spec
            assert isinstance(spec, GenerateSpec)
            options = replace(spec.options, return_attention=True)
            self._submit(replace(spec, options=options, answer=self.answer))
        else:
            self._finish()

    def _finish(self) -> None:
        try:
            self.set_result(self._make(self))
        except BaseException as error:
            # A panic of the tokenizer's library is not a subclass of Exception.
            self._fail(error)

    def _failed(self, error: ServiceError) -> None:
        if self._is_whole:
            # It is complete without the attention.
            self._finish()
            return
        self._record.ended(EndedRequest(self.spec, self.timeline, Failed(error)))
        if self.spec.is_bulk and isinstance(error, QueueFull):
            wait_s = error.retry_after_s
            if time.monotonic() + wait_s < self.spec.begin_by_s:
                self._retry = self.get_loop().call_later(wait_s, self._submit, self._sent)
                return
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.set_exception(error)
        # Nobody reads it after a cancel.
        self.exception()


def answer_of(call: EngineCall[Any]) -> Any:
    """Returns the answer itself, as the result of a call."""
    return call.answer


# They depend on the deadline and the turn of a request; an equal one may be answered.
_CALLER_SPECIFIC = (DeadlinePassed, QueueFull)


class CachedCall(EngineCall[Result]):
    """A call whose answer need not be computed again.

    Of equal requests the first one in flight is computed, and the others wait for its answer. They
    would wait behind it in the queue anyway. Streams wait for no other, because all tokens would
    come at once; nor do requests with a time limit.
    """

    def __init__(
        self, answers: VersionAnswers, engine: AnsweringEngine, spec: GenerateSpec, *others: Any
    ) -> None:
        super().__init__(engine, spec, *others)
        self._answers, self._key = answers, answers.key_of(spec)
        is_shared = not spec.streamed and spec.limit_s == math.inf
        self._flight = (self._key, QueueKey.of(spec)) if is_shared else None

    def begin(self) -> Self:
        """Submits the request unless its answer is kept or in flight."""
        if (answer := self._answers.get(self._key)) is not None:
            self._take(answer, "hit")
        elif self._flight is None:
            self._submit(self.spec)
        else:
            calls = self._answers.under_way.setdefault(self._flight, [])
            calls.append(self)
            if calls[0] is self:
                self._submit(self.spec)
        return self

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancels the request; the next one that waits for its answer is computed instead."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._hand_on(self._leave())
        return is_cancelled

    def _whole(self) -> None:
        self._answers.counts.lookups["miss"] += 1
        self._answers.keep(self._key, self.answer)
        waiting = self._leave()
        super()._whole()
        for call in waiting:
            call._take(self.answer, "joined")

    def _fail(self, error: BaseException) -> None:
        waiting = self._leave()
        super()._fail(error)
        if isinstance(error, ServiceError) and not isinstance(error, _CALLER_SPECIFIC):
            for call in waiting:
                call._fail(error)
        else:
            self._hand_on(waiting)

    def _take(self, answer: Finished, lookup: str) -> None:
        """Ends with an answer that no engine computed for this call: all its time was waiting."""
        self._answers.counts.lookups[lookup] += 1
        self.timeline.finished_s = time.monotonic()
        self.answer = answer
        super()._whole()

    def _leave(self) -> list[CachedCall[Any]]:
        """Leaves the flight; returns the calls that wait for the answer of this one."""
        calls: list[CachedCall[Any]] = self._answers.under_way.get(self._flight, [])
        is_first = calls[:1] == [self]
        if is_first:
            del self._answers.under_way[self._flight]
        if self in calls:
            calls.remove(self)
        return calls if is_first else []

    def _hand_on(self, calls: list[CachedCall[Any]]) -> None:
        if calls:
            self._answers.under_way[self._flight] = calls
            calls[0]._submit(calls[0].spec)
