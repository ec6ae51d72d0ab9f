"""Runs one request on an engine, as a future of what becomes of its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, Self, TypeAlias, TypeVar

from seqserve_server.contract.errors import QueueFull, ServiceError
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Progress,
    TargetScored,
    Timeline,
)
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.front.call.server_call import has_passed
from seqserve_server.front.engine_client.engine import AnsweringEngine
from seqserve_server.front.telemetry.call_record import CallRecord, EndedRequest

Answer: TypeAlias = Finished | TargetScored
Result = TypeVar("Result")


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
        self._retry: asyncio.TimerHandle | None = None
        self._request_id: int | None = None
        self._sent = spec
        # Only for streams.
        self._news: asyncio.Event | None = None
        self._throttle: StreamThrottle | None = None
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
        self._news, self._throttle = asyncio.Event(), StreamThrottle()
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
            if self._throttle is not None and self._throttle.is_due(self._engine.pending):
                self._wake()
            return
        self._request_id = None
        if timeline is not None and self.answer is None:
            # The times stay from decoding.
            self.timeline = timeline
        if isinstance(event, Failed):
            self._failed(event.error)
        else:
            self._answered(event)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()

    def _answered(self, answer: Answer) -> None:
        spec, is_first, self.answer = self.spec, self._sent is self.spec, answer
        if self._is_optional:
            self._finish()
        elif is_first and isinstance(spec, GenerateSpec) and spec.lacks_attention(self.timeline):
            self._submit(replace(spec, answer=self.answer))
        else:
            self._whole()

    def _whole(self) -> None:
        self._end(self.answer)
        self._improve()

    def _improve(self) -> None:
        """Ends the call, once its answer has the attention that makes it better."""
        if self._wants_attention is not None and self._wants_attention(self.answer):
            spec = self.spec
            assert isinstance(spec, GenerateSpec)
            options = replace(spec.options, return_attention=True)
            self._submit(replace(spec, options=options, answer=self.answer))
        else:
            self._finish()

    @property
    def _is_optional(self) -> bool:
        """Whether the answer is complete without the last thing requested."""
        sent, spec = self._sent, self.spec
        return isinstance(sent, GenerateSpec) and sent.options is not spec.options  # type: ignore[union-attr]

    def _finish(self) -> None:
        try:
            self.set_result(self._make(self))
        except BaseException as error:
            # A panic of the tokenizer's library is not a subclass of Exception.
            self._fail(error)

    def _failed(self, error: ServiceError) -> None:
        if self._is_optional:
            self._finish()
            return
        self._end(Failed(error))
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

    def _end(self, last: Event) -> None:
        self._record.ended(EndedRequest(self.spec, self.timeline, last))


def answer_of(call: EngineCall[Any]) -> Any:
    """Returns the answer itself, as the result of a call."""
    return call.answer


UNTHROTTLED_STREAMS = 16
"""Requests in flight on an engine up to which every token is sent at once."""
INTERVAL_S = 0.05
"""How long tokens are gathered from when a message was due."""


class StreamThrottle:
    """When one stream may send its new tokens.

    A message costs far more than its tokens. So where many requests are in flight, the tokens of a
    short while go in one: with the first token after it, or with the answer. The first tokens of a
    stream never wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s = 0.0

    def is_due(self, under_way: int) -> bool:
        """Returns whether a message is due, now that there are new tokens."""
        now_s = self._clock()
        if under_way > UNTHROTTLED_STREAMS and now_s < self._due_s:
            return False
        self._due_s = now_s + INTERVAL_S
        return True
