"""Tasks of an event loop: starting and stopping them, waiting for events, futures and items.

The client is written for tasks; ``threads`` has the same names for the blocking client.
"""

import asyncio
from asyncio import Future as Future
from asyncio import Lock as Lock
from asyncio import Queue as Queue
from asyncio import Semaphore as Semaphore
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeAlias, TypeVar

A = TypeVar("A")

Failure: TypeAlias = Exception
"""Exceptions that a worker reports instead of ending; a cancelled task must end."""
Worker: TypeAlias = asyncio.Task[None]


class Event:
    """Wakes the tasks that wait for it. Needs no event loop until then."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: set[asyncio.Future[None]] = set()

    def is_set(self) -> bool:
        """Returns whether :meth:`set` was called."""
        return self._is_set

    def set(self) -> None:
        """Wakes every waiting task."""
        self._is_set = True
        for waiting in self._waiting:
            waiting.cancel()

    async def wait(self, timeout_s: float) -> None:
        """Returns when the event is set or the time is over."""
        if self._is_set:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=timeout_s)
        finally:
            self._waiting.discard(waiting)


def start(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Worker:
    """Starts a task."""
    return asyncio.create_task(work(), name=name)


async def stop(*workers: Worker) -> None:
    """Cancels tasks and returns when they have ended."""
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def finished(worker: Worker) -> None:
    """Returns when a task has ended."""
    await asyncio.wait([worker])


def fail(future: Future[Any], error: Exception) -> None:
    """Fails a future."""
    future.set_exception(error)
    # Marks it as retrieved: asyncio logs every other one, such as those after a caller has left.
    future.exception()


async def settled(future: Future[Any]) -> None:
    """Returns when a future has its result or exception."""
    await asyncio.wait([future])


async def items_of(items: Iterable[A] | AsyncIterable[A]) -> AsyncIterator[A]:
    """Yields the items of a plain or asynchronous iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
