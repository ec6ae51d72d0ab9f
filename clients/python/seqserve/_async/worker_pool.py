"""Many calls at once, their outcomes in the order of the items; memory stays bounded.

At most ``concurrency`` items are worked on, and at most :data:`~seqserve.arguments.WINDOW` times as
many are between input and output. An outcome is yielded as soon as it and all before it are done,
even while the input blocks its reader.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from seqserve._concurrency import tasks
from seqserve.arguments import WINDOW, checked_concurrency

A = TypeVar("A")
R = TypeVar("R")


class WorkerPool(Generic[A, R]):
    """Tasks that take turns at reading items, and work on them at the same time."""

    def __init__(
        self,
        work: Callable[[A], Coroutine[Any, Any, R]],
        items: Iterable[A] | AsyncIterable[A],
        concurrency: int,
    ) -> None:
        """Checks the concurrency and starts nothing yet; the tasks read items one at a time."""
        self._work = work
        self._items = tasks.items_of(items)
        self._concurrency = checked_concurrency(concurrency)
        self._reading = tasks.Lock()
        self._window = tasks.Semaphore(concurrency * WINDOW)
        self._futures: tasks.Queue[tasks.Future[R] | None] = tasks.Queue()
        self._is_over = False

    async def outcomes(self) -> AsyncGenerator[tasks.Future[R], None]:
        """Yields a finished future for each item, in order.

        If reading the items fails, a last future has the error.
        """
        workers = [tasks.start(self._run, "seqserve-many") for _ in range(self._concurrency)]
        try:
            while (future := await self._futures.get()) is not None:
                await tasks.settled(future)
                yield future
                self._window.release()
        finally:
            self._is_over = True
            self._window.release()
            await tasks.stop(*workers)

    async def _run(self) -> None:
        while (taken := await self._take()) is not None:
            item, future = taken
            try:
                future.set_result(await self._work(item))
            except tasks.Failure as error:
                tasks.fail(future, error)

    async def _take(self) -> tuple[A, tasks.Future[R]] | None:
        async with self._reading:
            await self._window.acquire()
            if self._is_over:
                # Wakes the next worker, which ends as well.
                self._window.release()
                return None
            future: tasks.Future[R] = tasks.Future()
            try:
                item = await anext(self._items)
            except StopAsyncIteration:
                self._end()
                return None
            except tasks.Failure as error:
                tasks.fail(future, error)
                self._futures.put_nowait(future)
                self._end()
                return None
            self._futures.put_nowait(future)
            return item, future

    def _end(self) -> None:
        self._is_over = True
        self._window.release()
        self._futures.put_nowait(None)
