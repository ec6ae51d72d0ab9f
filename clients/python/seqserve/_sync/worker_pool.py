# Generated from seqserve/_async/worker_pool.py by `make clients`; do not edit.
"""Many calls at once, their outcomes in the order of the items; memory stays bounded.

At most ``concurrency`` items are worked on, and at most :data:`~seqserve.arguments.WINDOW` times as
many are between input and output. An outcome is yielded as soon as it and all before it are done,
even while the input blocks its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

from seqserve._concurrency import threads
from seqserve.arguments import WINDOW, checked_concurrency

A = TypeVar("A")
R = TypeVar("R")


class WorkerPool(Generic[A, R]):
    """Threads that take turns at reading items, and work on them at the same time."""

    def __init__(
        self,
        work: Callable[[A], R],
        items: Iterable[A],
        concurrency: int,
    ) -> None:
        """Checks the concurrency and starts nothing yet; the threads read items one at a time."""
        self._work = work
        self._items = threads.items_of(items)
        self._concurrency = checked_concurrency(concurrency)
        self._reading = threads.Lock()
        self._window = threads.Semaphore(concurrency * WINDOW)
        self._futures: threads.Queue[threads.Future[R] | None] = threads.Queue()
        self._is_over = False

    def outcomes(self) -> Generator[threads.Future[R], None, None]:
        """Yields a finished future for each item, in order.

        If reading the items fails, a last future has the error.
        """
        workers = [threads.start(self._run, "seqserve-many") for _ in range(self._concurrency)]
        try:
            while (future := self._futures.get()) is not None:
                threads.settled(future)
                yield future
                self._window.release()
        finally:
            self._is_over = True
            self._window.release()
            threads.stop(*workers)

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            item, future = taken
            try:
                future.set_result(self._work(item))
            except threads.Failure as error:
                threads.fail(future, error)

    def _take(self) -> tuple[A, threads.Future[R]] | None:
        with self._reading:
            self._window.acquire()
            if self._is_over:
                # Wakes the next worker, which ends as well.
                self._window.release()
                return None
            future: threads.Future[R] = threads.Future()
            try:
                item = next(self._items)
            except StopIteration:
                self._end()
                return None
            except threads.Failure as error:
                threads.fail(future, error)
                self._futures.put_nowait(future)
                self._end()
                return None
            self._futures.put_nowait(future)
            return item, future

    def _end(self) -> None:
        self._is_over = True
        self._window.release()
        self._futures.put_nowait(None)
