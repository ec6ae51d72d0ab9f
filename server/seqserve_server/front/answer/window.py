"""Answers the sources of one call, at most as many at once as the engine can run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeAlias, TypeVar

Source = TypeVar("Source")
Answer = TypeVar("Answer")
Room: TypeAlias = asyncio.Semaphore


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


async def answers_in_order(
    sources: Iterable[Source], answer: Callable[[Source], Awaitable[Answer]], room: Room
) -> AsyncGenerator[Answer, None]:
    """Yields the answers in the order of their sources, each as soon as all before it are there.

    Leaving early cancels the answers under way.

    Args:
        sources: The sources.
        answer: Answers one of them, in a task of its own.
        room: How many may be under way at once; others may take room of the same.
    """
    tasks: set[asyncio.Task[Answer]] = set()
    started: asyncio.Queue[asyncio.Task[Answer] | None] = asyncio.Queue()

    async def start() -> None:
        for source in sources:
            await room.acquire()
            task = asyncio.ensure_future(answer(source))
            task.add_done_callback(lambda _: room.release())
            tasks.add(task)
            started.put_nowait(task)
        started.put_nowait(None)

    starting = asyncio.create_task(start())
    try:
        while (task := await started.get()) is not None:
            yield await task
            tasks.discard(task)
    finally:
        for each in (starting, *tasks):
            each.cancel()
        await asyncio.gather(starting, *tasks, return_exceptions=True)
