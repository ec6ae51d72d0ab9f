"""Answers the sources of one call, at most as many at once as the engine can run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Source = TypeVar("Source")
Answer = TypeVar("Answer")


async def answer_all(
    sources: Iterable[Source], answer: Callable[[Source], Awaitable[Answer]], slots: int
) -> list[Answer]:
    """Answers every source in a task of its own; the first error ends them all.

    Args:
        sources: The sources.
        answer: Answers one of them.
        slots: Sources under way at once, so that a large batch does not fill the engine's queue.

    Returns:
        The answers in the order of their sources.
    """
    room = asyncio.Semaphore(slots)

    async def one(source: Source) -> Answer:
        async with room:
            return await answer(source)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(source)) for source in sources]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
