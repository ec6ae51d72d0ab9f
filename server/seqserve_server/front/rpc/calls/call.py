"""One request in the engine, as a coroutine sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from seqserve_server.contract.errors import QueueFull
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Progress,
    TargetScored,
    Timeline,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority, Request
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.rpc.calls.deadline import has_passed
from seqserve_server.front.rpc.calls.server_call import ServerCall, current

MAX_REFUSALS = 8
"""Waits are as long as the queue is, so that few of them are enough unless others flood it."""


class EngineCall:
    """Submits a request and waits for it; leaving early cancels it.

    Events come in the event loop. New tokens that nobody has fetched yet are kept in one list, so
    that a slow reader costs no more than the tokens of its answer.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        source: list[int],
        options: DecodingOptions,
        *,
        arrived_s: float,
        remaining_s: float | None,
        streamed: bool = False,
        target: list[int] | None = None,
        wants_attention: bool = False,
        caller: str = "",
        priority: Priority = Priority.NORMAL,
    ) -> None:
        """Prepares the request.

        Args:
            engine: Who decodes.
            source: Token ids, the end token last.
            options: How to decode.
            arrived_s: When the call came, on the monotonic clock.
            remaining_s: Until its deadline; None without one.
            streamed: Whether progress is wanted.
            target: Token ids to be scored, where nothing is to be generated.
            wants_attention: Whether the attention of the target is wanted.
            caller: Who asks.
            priority: Who goes first.
        """
        self._engine = engine
        self._changed = asyncio.Event()
        self._pending: list[int] = []
        self._last: Event | None = None
        self._record: ServerCall | None = current.get(None)
        self.request = Request(
            source=source,
            options=options,
            receive=self._receive,
            deadline_s=None if remaining_s is None else arrived_s + remaining_s,
            streamed=streamed,
            target=target,
            wants_attention=wants_attention,
            call_id=self._record.request_id if self._record else "",
            caller=caller,
            priority=priority,
            timeline=Timeline(arrived_s=arrived_s),
        )

    async def finished(self) -> Finished:
        """Submits the request and waits for the whole answer.

        Raises:
            ServiceError: The request failed.
        """
        await self._ended()
        return self.result()

    async def finished_in_time(self, max_refusals: float = MAX_REFUSALS) -> Finished:
        """Does the same, but comes back where the queue is full, when it is told to.

        For one of many sources of a call, the others of which may be what fills the queue.

        Args:
            max_refusals: How often at most.

        Raises:
            ServiceError: The request failed, or was refused more often, or there is no time left to
                come back.
        """
        refusals = 0
        while True:
            try:
                return await self.finished()
            except QueueFull as full:
                refusals += 1
                back_s = time.monotonic() + full.retry_after_s
                if refusals > max_refusals or back_s >= self.request.begin_by_s:
                    raise
                await asyncio.sleep(full.retry_after_s)
            self._last = None

    async def target_scored(self) -> TargetScored:
        """Submits the request and waits for what is known of its target.

        Raises:
            ServiceError: The request failed.
        """
        await self._ended()
        if isinstance(self._last, Failed):
            raise self._last.error
        assert isinstance(self._last, TargetScored)
        return self._last

    async def _ended(self) -> None:
        with self._under_way():
            while self._last is None:
                await self._news()

    async def progress(self) -> AsyncGenerator[list[int], None]:
        """Submits the request and gives new tokens as they come, until the answer is whole.

        Raises:
            ServiceError: The request failed.
        """
        with self._under_way():
            while self._last is None:
                await self._news()
                tokens, self._pending = self._pending, []
                if tokens:
                    yield tokens
        self.result()

    def result(self) -> Finished:
        """Gives the whole answer once it is there.

        Raises:
            ServiceError: The request failed.
        """
        if isinstance(self._last, Failed):
            raise self._last.error
        assert isinstance(self._last, Finished)
        return self._last

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        self._engine.submit(self.request)
        try:
            yield
        finally:
            if self._last is None:
                self._leave()
            elif self._record is not None:
                self._record.ended(self.request, self._last)

    async def _news(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _leave(self) -> None:
        request, now_s = self.request, time.monotonic()
        if request.deadline_s is not None:
            elapsed_s = now_s - request.timeline.arrived_s
            if has_passed(request.deadline_s - now_s, elapsed_s):
                # So that it is counted as late.
                request.deadline_s = now_s
        self._engine.cancel(request)

    def _receive(self, event: Event) -> None:
        if isinstance(event, Progress):
            self._pending += event.token_ids
        else:
            self._last = event
        self._changed.set()
