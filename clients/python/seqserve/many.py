"""Many calls at once, their outcomes in the order of what went in; memory stays bounded.

Answers come back out of order, so some wait for an earlier one. At most ``concurrency`` calls are
under way, and at most :data:`WINDOW` times as many items are between input and output; then no more
is read. An outcome is handed out as soon as it and all before it are there, even while the input
makes its reader wait: a slow or endless input is as welcome as a list.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
)
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from seqserve.errors import InvalidArgument

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S", bound=Iterable[str] | AsyncIterable[str])

WINDOW = 4
"""Items between input and output for each call under way, so that one slow answer stalls few."""


def in_order(
    work: Callable[[A], R], items: Iterable[A], concurrency: int
) -> Generator[Future[R], None, None]:
    """Works on items with threads and gives their outcomes in order.

    Args:
        work: What to do with an item.
        items: The items; read by the threads, one at a time.
        concurrency: Most items worked on at once.

    Yields:
        For each item a future that is done. Where reading the items failed, a last one says so.

    Raises:
        InvalidArgument: The concurrency is not at least 1.
    """
    return _Crew(work, items, checked_concurrency(concurrency)).outcomes()


async def async_in_order(
    work: Callable[[A], Coroutine[Any, Any, R]],
    items: Iterable[A] | AsyncIterable[A],
    concurrency: int,
) -> AsyncGenerator[asyncio.Task[R], None]:
    """Works on items with tasks and gives their outcomes in order.

    Args:
        work: What to do with an item.
        items: The items; a plain iterable is read on the event loop, so it must not block.
        concurrency: Most items worked on at once.

    Yields:
        For each item a task that is done.

    Raises:
        InvalidArgument: The concurrency is not at least 1.
    """
    room = asyncio.Semaphore(checked_concurrency(concurrency) * WINDOW)
    limit = asyncio.Semaphore(concurrency)
    ordered: asyncio.Queue[asyncio.Task[R] | None] = asyncio.Queue()
    waiting: set[asyncio.Task[Any]] = set()

    async def limited(item: A) -> R:
        async with limit:
            return await work(item)

    async def feed() -> None:
        try:
            async for item in async_iterator(items):
                await room.acquire()
                task = asyncio.create_task(limited(item))
                waiting.add(task)
                ordered.put_nowait(task)
        finally:
            ordered.put_nowait(None)

    feeder = asyncio.create_task(feed())
    try:
        while (task := await ordered.get()) is not None:
            await asyncio.wait([task])
            waiting.discard(task)
            yield task
            room.release()
        await feeder
    finally:
        waiting.add(feeder)
        for task_ in waiting:
            task_.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


class _Crew(Generic[A, R]):
    """The threads of one run; they take turns at the input."""

    def __init__(self, work: Callable[[A], R], items: Iterable[A], concurrency: int) -> None:
        self._work = work
        self._items = iter(items)
        self._concurrency = concurrency
        self._turn = threading.Lock()
        self._room = threading.Semaphore(concurrency * WINDOW)
        self._ordered: SimpleQueue[Future[R] | None] = SimpleQueue()
        self._is_over = False

    def outcomes(self) -> Generator[Future[R], None, None]:
        # Daemons, for a reader of standard input may hang there when the program wants to end.
        for _ in range(self._concurrency):
            # In the context of the caller, where its trace is.
            run = partial(copy_context().run, self._run)
            threading.Thread(target=run, name="seqserve-many", daemon=True).start()
        try:
            while (future := self._ordered.get()) is not None:
                future.exception()
                yield future
                self._room.release()
        finally:
            self._is_over = True
            self._room.release(self._concurrency)

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            item, future = taken
            try:
                future.set_result(self._work(item))
            except BaseException as error:
                future.set_exception(error)

    def _take(self) -> tuple[A, Future[R]] | None:
        with self._turn:
            self._room.acquire()
            if self._is_over:
                return None
            future: Future[R] = Future()
            try:
                item = next(self._items)
            except StopIteration:
                self._is_over = True
                self._ordered.put(None)
                return None
            except BaseException as error:
                self._is_over = True
                future.set_exception(error)
                self._ordered.put(future)
                self._ordered.put(None)
                return None
            self._ordered.put(future)
            return item, future


def checked_concurrency(concurrency: int) -> int:
    """Gives a concurrency as it is.

    Raises:
        InvalidArgument: It is not at least 1.
    """
    if concurrency < 1:
        reason = f"concurrency: {concurrency} is less than 1"
        raise InvalidArgument("INVALID_ARGUMENT", reason, field="concurrency")
    return concurrency


def checked_sources(sources: S) -> S:
    """Gives sources as they are.

    Raises:
        InvalidArgument: They are one text, which would pass for its characters.
    """
    if isinstance(sources, str | bytes):
        reason = f"sources: {sources!r:.80} is one text; give a list of texts"
        raise InvalidArgument("INVALID_ARGUMENT", reason, field="sources")
    return sources


async def async_iterator(items: Iterable[A] | AsyncIterable[A]) -> AsyncIterator[A]:
    """Gives items, whichever way they come."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
