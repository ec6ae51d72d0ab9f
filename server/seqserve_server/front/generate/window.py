"""Bounds how many parts of a call are in flight at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import cached_property
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Window:
    """As many places as may be taken at once.

    A call has as many as its model can run: they fill a batch, and requests of others need not wait
    behind what it would put into the engine's queue.
    """

    def __init__(self, size: int) -> None:
        """Starts with all places free."""
        self._size = size

    @cached_property
    def _free(self) -> asyncio.Semaphore:
        # Most sources have one part, which needs no place.
        return asyncio.Semaphore(self._size)

    @cached_property
    def inner(self) -> Window:
        """Another one of this size, for texts that a second model divides once more.

        Parts of the source wait for it, and hold their places meanwhile.
        """
        return Window(self._size)

    async def map_in_order(
        self, items: Sequence[Item], run: Callable[[Item], Awaitable[Answer]]
    ) -> AsyncGenerator[Answer, None]:
        """Yields the answers in the order of their items, each as soon as all before it are there.

        Leaving early cancels the answers in flight.

        Args:
            items: What to answer.
            run: Answers one item, in a separate task.
        """
        tasks: set[asyncio.Task[Answer]] = set()
        started: asyncio.Queue[asyncio.Task[Answer]] = asyncio.Queue()

        async def start() -> None:
            for item in items:
                await self._free.acquire()
                task = asyncio.ensure_future(run(item))
                task.add_done_callback(lambda _: self._free.release())
                tasks.add(task)
                started.put_nowait(task)

        starting = asyncio.create_task(start())
        try:
            for _ in items:
                task = await started.get()
                yield await task
                tasks.discard(task)
        finally:
            for unfinished in (starting, *tasks):
                unfinished.cancel()
            await asyncio.gather(starting, *tasks, return_exceptions=True)
