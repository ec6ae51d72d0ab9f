"""The loops that send requests: open, and closed with a fixed number in flight.

A run begins at ``began_s`` of :func:`time.perf_counter`, or now; a caller gives up ``timeout_s``
after its request was due.
"""

import asyncio
import gc
import math
import select
import selectors
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from seqserve.load import Answer, Caller
from seqserve.load.arrivals import Arrival

PATIENCE_S = 60.0
"""Only a server that hangs answers later."""


def _nothing(answer: Answer) -> None:
    pass


async def call(
    caller: Caller,
    source: str,
    began_s: float,
    due_s: float,
    timeout_s: float = PATIENCE_S,
    late_s: float = 0.0,
) -> Answer:
    """Sends one request and waits for its end."""
    at_s = began_s + due_s
    sent_s = time.perf_counter() - at_s
    reply = await caller.send(source, max(0.0, timeout_s - sent_s))
    return Answer(
        due_s=due_s,
        late_s=late_s,
        sent_s=sent_s,
        first_s=reply.first_at_s - at_s,
        total_s=math.inf if reply.error else time.perf_counter() - at_s,
        gaps_s=reply.gaps_s,
        tokens=reply.tokens,
        source_tokens=reply.source_tokens,
        error=reply.error,
        details=reply.details,
    )


async def open_loop(
    caller: Caller,
    arrivals: Iterable[Arrival],
    timeout_s: float,
    *,
    in_flight: int | None = None,
    began_s: float | None = None,
    answered: Callable[[Answer], None] = _nothing,
) -> list[Answer]:
    """Sends every request when it is due, whatever is still unanswered."""
    gc.collect()
    began_s = time.perf_counter() if began_s is None else began_s
    places: AbstractAsyncContextManager[None] = (
        nullcontext() if in_flight is None else asyncio.Semaphore(in_flight)
    )

    async def arrived(arrival: Arrival) -> Answer:
        late_s = time.perf_counter() - began_s - arrival.due_s
        async with places:
            answer = await call(caller, arrival.source, began_s, arrival.due_s, timeout_s, late_s)
        answered(answer)
        return answer

    calls: list[asyncio.Task[Answer]] = []
    async with asyncio.TaskGroup() as group:
        for arrival in arrivals:
            ahead_s = began_s + arrival.due_s - time.perf_counter()
            await asyncio.sleep(max(0.0, ahead_s))
            calls.append(group.create_task(arrived(arrival)))
    return [call.result() for call in calls]


async def closed_loop(
    caller: Caller,
    sources: Iterable[str],
    in_flight: int,
    timeout_s: float = PATIENCE_S,
    *,
    began_s: float | None = None,
    answered: Callable[[Answer], None] = _nothing,
) -> list[Answer]:
    """Keeps a number of requests in flight until the sources are used up.

    A request is due when the one before it has been answered.
    """
    gc.collect()
    began_s = time.perf_counter() if began_s is None else began_s
    waiting = iter(sources)
    answers: list[Answer] = []

    async def one_after_the_other() -> None:
        for source in waiting:
            due_s = time.perf_counter() - began_s
            answer = await call(caller, source, began_s, due_s, timeout_s)
            answered(answer)
            answers.append(answer)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_the_other())
    return answers


if hasattr(selectors, "EpollSelector"):

    class _PreciseSelector(selectors.EpollSelector):
        """Waits for an epoll by select, in microseconds: epoll waits in whole milliseconds."""

        def select(self, timeout: float | None = None) -> list[Any]:
            if timeout is not None and timeout > 0:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)
else:
    _PreciseSelector = selectors.DefaultSelector  # type: ignore[misc,assignment]


def precise_loop() -> asyncio.AbstractEventLoop:
    """Makes an event loop whose waits end in time, not up to a millisecond late."""
    return asyncio.SelectorEventLoop(_PreciseSelector())
