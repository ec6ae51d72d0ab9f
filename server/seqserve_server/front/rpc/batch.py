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
    # Not results of the tasks: a cancelled task group is garbage that only the collector finds.
    answers: dict[int, Answer] = {}

    async def one(index: int, source: Source) -> None:
        async with room:
            answers[index] = await answer(source)

    try:
        async with asyncio.TaskGroup() as group:
            for index, source in enumerate(sources):
                group.create_task(one(index, source))
    except BaseException as error:
        answers.clear()
        if isinstance(error, ExceptionGroup):
            raise error.exceptions[0] from None
        raise
    return [answers[index] for index in range(len(answers))]
