"""Runs one request on an engine for a coroutine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import replace

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
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.rpc.calls.deadline import has_passed
from seqserve_server.front.rpc.calls.message_pace import MessagePace
from seqserve_server.front.rpc.calls.server_call import ServerCall, current
from seqserve_server.front.telemetry.call_record import EndedRequest


class EngineCall:
    """Submits a request and waits for its answer; leaving early cancels it.

    An answer that needs its attention is submitted again, as a second request, before the caller
    gets it. Events come in the event loop. Tokens that nobody has fetched yet are kept in one list,
    so a slow reader costs no more than the tokens of its answer.
    """

    def __init__(self, engine: EngineGroup, spec: Spec) -> None:
        """Prepares the call.

        Args:
            engine: The engine.
            spec: What to ask of it.
        """
        self.spec = spec
        self.timeline = Timeline(arrived_s=spec.arrived_s)
        """When the request reached each stage."""
        self._engine = engine
        self._changed = asyncio.Event()
        self._unread: list[int] = []
        self._pace = MessagePace()
        self._last: Event | None = None
        self._record: ServerCall | None = current.get(None)

    async def finished(self) -> Finished:
        """Submits the request and waits for the whole answer.

        Raises:
            ServiceError: The request failed.
        """
        await self._run(self.spec)
        await self._complete()
        return self.result()

    async def finished_in_time(self) -> Finished:
        """Does the same, but tries again when the queue is full, as soon as it is advised to.

        For one of many sources of a call, because the others may be what fills the queue.

        Raises:
            ServiceError: The request failed, or has no time left to try again.
        """
        while True:
            try:
                return await self.finished()
            except QueueFull as full:
                retry_s = time.monotonic() + full.retry_after_s
                if retry_s >= self.spec.begin_by_s:
                    raise
                await asyncio.sleep(full.retry_after_s)

    async def target_scored(self) -> TargetScored:
        """Submits the request and waits for the scores of its target.

        Raises:
            ServiceError: The request failed.
        """
        await self._run(self.spec)
        await self._complete()
        assert isinstance(self._last, TargetScored)
        return self._last

    async def progress(self) -> AsyncGenerator[list[int], None]:
        """Submits the request and yields new tokens as they come, until the answer is whole.

        Raises:
            ServiceError: The request failed.
        """
        with self._submitted(self.spec):
            while self._last is None:
                await self._next_event()
                tokens, self._unread = self._unread, []
                if tokens:
                    yield tokens
        await self._complete()

    def result(self) -> Finished:
        """Returns the whole answer once it is there."""
        assert isinstance(self._last, Finished)
        return self._last

    async def _complete(self) -> None:
        """Gets the attention that the answer lacks, and ends the request.

        Raises:
            ServiceError: The request failed.
        """
        spec, answer, timeline = self.spec, self._last, self.timeline
        if (
            isinstance(answer, Finished)
            and isinstance(spec, GenerateSpec)
            and spec.lacks_attention(timeline)
        ):
            await self._run(replace(spec, answer=answer))
            # Times are those of decoding.
            self.timeline = timeline
        assert self._last is not None
        self._end(self._last)
        if isinstance(self._last, Failed):
            raise self._last.error

    def _end(self, last: Event) -> None:
        """Takes the last event, and notes how the request ended."""
        self._last = last
        if self._record is not None:
            self._record.ended(EndedRequest(self.spec, self.timeline, last))

    async def _run(self, spec: Spec) -> None:
        with self._submitted(spec):
            while self._last is None:
                await self._next_event()

    @contextmanager
    def _submitted(self, spec: Spec) -> Iterator[None]:
        self._last = None
        request_id = self._engine.submit(spec, self._receive)
        try:
            yield
        finally:
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
        if self._last is not None or self._pace.is_due(self._engine.pending):
            self._changed.set()
