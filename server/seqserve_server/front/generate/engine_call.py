"""Runs one request on an engine for a coroutine."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from seqserve_server.contract.errors import QueueFull
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
from seqserve_server.front.engine_client.engine import AnsweringEngine, QueueKey
from seqserve_server.front.generate.job import Job
from seqserve_server.front.generate.records import Part
from seqserve_server.front.models.answer_cache import VersionAnswers
from seqserve_server.front.telemetry.call_record import CallRecord, EndedRequest


class EngineCall:
    """Submits a request and waits for its answer; leaving early cancels it.

    An answer that needs its attention is submitted again, as a second request, before the caller
    gets it. Events come in the event loop. Tokens that nobody has fetched yet are kept in one list,
    so a slow reader costs no more than the tokens of its answer.
    """

    def __init__(self, engine: AnsweringEngine, spec: Spec, record: CallRecord) -> None:
        self.spec = spec
        self.timeline = Timeline(arrived_s=spec.arrived_s)
        """When the request reached each stage."""
        self._engine = engine
        self._changed = asyncio.Event()
        self._unread: list[int] = []
        self._throttle = StreamThrottle()
        self._last: Event | None = None
        self._record = record

    async def finished(self, *, retries: bool = False) -> Finished:
        """Submits the request and waits for the whole answer.

        Args:
            retries: Whether to try again when the queue is full, as soon as it is advised to: for
                one of many requests of a call, because the others may be what fills the queue.
        """
        while True:
            try:
                return await self._finished()
            except QueueFull as full:
                retry_s = time.monotonic() + full.retry_after_s
                if not retries or retry_s >= self.spec.begin_by_s:
                    raise
                await asyncio.sleep(full.retry_after_s)

    async def _finished(self) -> Finished:
        await self._run(self.spec)
        await self._complete()
        return self.result()

    async def target_scored(self) -> TargetScored:
        """Submits the request and waits for the scores of its target."""
        await self._run(self.spec)
        await self._complete()
        assert isinstance(self._last, TargetScored)
        return self._last

    async def progress(self) -> AsyncGenerator[list[int], None]:
        """Submits the request and yields new tokens as they come, until the answer is whole."""
        request_id = self._submit(self.spec)
        try:
            while self._last is None:
                await self._next_event()
                tokens, self._unread = self._unread, []
                if tokens:
                    yield tokens
        finally:
            self._leave(request_id)
        await self._complete()

    def result(self) -> Finished:
        """Returns the whole answer once it is there."""
        assert isinstance(self._last, Finished)
        return self._last

    async def with_attention(self) -> Finished:
        """Gets the attention of a whole answer whose request did not want it.

        The record of the call leaves that out.
        """
        assert isinstance(self.spec, GenerateSpec)
        options = replace(self.spec.options, return_attention=True)
        await self._fetch_attention(replace(self.spec, options=options))
        if isinstance(self._last, Failed):
            raise self._last.error
        return self.result()

    async def _complete(self) -> None:
        spec = self.spec
        if (
            isinstance(self._last, Finished)
            and isinstance(spec, GenerateSpec)
            and spec.lacks_attention(self.timeline)
        ):
            await self._fetch_attention(spec)
        assert self._last is not None
        self._end(self._last)
        if isinstance(self._last, Failed):
            raise self._last.error

    async def _fetch_attention(self, spec: GenerateSpec) -> None:
        # The times stay those of decoding.
        answer, timeline = self.result(), self.timeline
        await self._run(replace(spec, answer=answer))
        self.timeline = timeline

    def _end(self, last: Event) -> None:
        self._last = last
        self._record.ended(EndedRequest(self.spec, self.timeline, last))

    async def _run(self, spec: Spec) -> None:
        request_id = self._submit(spec)
        try:
            while self._last is None:
                await self._next_event()
        finally:
            self._leave(request_id)

    def _submit(self, spec: Spec) -> int:
        self._last = None
        return self._engine.submit(spec, self._receive)

    def _leave(self, request_id: int) -> None:
        if self._last is None:
            self._engine.cancel(request_id, is_late=self._is_late())

    async def _next_event(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _is_late(self) -> bool:
        now_s, deadline_s = time.monotonic(), self.spec.deadline_s
        return deadline_s is not None and has_passed(
            deadline_s - now_s, now_s - self.spec.arrived_s
        )

    def _receive(self, event: Event, timeline: Timeline | None) -> None:
        if timeline is not None:
            self.timeline = timeline
        if isinstance(event, Progress):
            self._unread += event.token_ids
        else:
            self._last = event
        if self._last is not None or self._throttle.is_due(self._engine.pending):
            self._changed.set()


class CachedCall(EngineCall):
    """A call whose answer need not be computed again.

    A request waits only for one behind which it would wait in the queue too, so it never loses by
    that. Streams wait for no other, because its tokens would come all at once; nor do requests with
    a time limit, because they may end before it. Both take what is kept.
    """

    def __init__(
        self,
        engine: AnsweringEngine,
        answers: VersionAnswers,
        spec: GenerateSpec,
        record: CallRecord,
    ) -> None:
        super().__init__(engine, spec, record)
        self._answers = answers
        self._key = answers.key_of(spec)
        self._is_shared = not spec.streamed and spec.limit_s == math.inf

    async def _finished(self) -> Finished:
        if self._find():
            return self.result()
        if not self._is_shared:
            return await self._computed()
        key = self._key, QueueKey.of(self.spec)
        if (answer := await self._answers.under_way.join(key)) is not None:
            return self._take(answer, "joined")
        return await self._answers.under_way.run(key, self._computed)

    async def progress(self) -> AsyncGenerator[list[int], None]:
        """Yields all tokens at once if the answer is kept, else as they come."""
        if self._find():
            if cast(GenerateSpec, self.spec).reports_progress:
                yield self.result().best.token_ids
            return
        async with aclosing(super().progress()) as progress:
            async for tokens in progress:
                yield tokens
        self._keep()

    def _find(self) -> bool:
        answer = self._answers.get(self._key)
        if answer is None:
            return False
        self._take(answer, "hit")
        return True

    def _take(self, answer: Finished, lookup: str) -> Finished:
        """Ends with an answer that no engine computed for this call: all its time was waiting."""
        self._answers.counts.lookups[lookup] += 1
        self.timeline = Timeline(arrived_s=self.spec.arrived_s, finished_s=time.monotonic())
        self._end(answer)
        return answer

    async def _computed(self) -> Finished:
        await super()._finished()
        return self._keep()

    def _keep(self) -> Finished:
        answer = self.result()
        self._answers.counts.lookups["miss"] += 1
        self._answers.keep(self._key, answer)
        return answer


def engine_call(job: Job, part: Part, *, streamed: bool = False, is_bulk: bool) -> EngineCall:
    """Prepares the request of a part; ``is_bulk`` is for one of many of the call."""
    model, call = job.hop.model, job.call
    fields = call.spec_fields()
    if is_bulk:
        # A call of many requests is a separate flow, which the client's other calls pass.
        fields["flow_id"] = fields["call_id"]
    spec = GenerateSpec(
        source=part.tokens,
        options=part.decoding,
        draft=part.draft,
        streamed=streamed,
        priority=job.priority,
        start_token=job.hop.options.affixes.start_token,
        is_bulk=is_bulk,
        **fields,
    )
    if model.answers is not None and job.hop.options.is_repeatable:
        return CachedCall(model.engine, model.answers, spec, call)
    return EngineCall(model.engine, spec, call)


UNTHROTTLED_STREAMS = 16
"""Requests in flight on an engine up to which every token is sent at once."""
INTERVAL_S = 0.05
"""How long tokens are gathered from when a message was due."""


class StreamThrottle:
    """When one stream may send its new tokens.

    A message costs far more than its tokens. So where many requests are in flight, the tokens of a
    short while go in one: with the first token after it, or with the answer. That is still faster
    than people read. The first tokens of a stream never wait, and where few requests are in flight
    none do.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s = 0.0

    def is_due(self, under_way: int) -> bool:
        """Tells whether a message is due, now that there are new tokens."""
        now_s = self._clock()
        if under_way > UNTHROTTLED_STREAMS and now_s < self._due_s:
            return False
        self._due_s = now_s + INTERVAL_S
        return True
