"""Many items: answered in order, but no more at once than there are places."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from seqserve_server.front.generate.job import Window

Answers = AsyncGenerator[asyncio.Future[int], None]


async def taken(answers: Answers) -> list[int]:
    async with aclosing(answers):
        return [answer.result() async for answer in answers]


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_answers_are_in_order_and_few_under_way_of_all_that_share_a_window(size: int) -> None:
    under_way = most = 0
    window = Window(size)

    async def answer(item: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (item % 3))
        under_way -= 1
        return 10 * item

    all_items: list[Sequence[int]] = [range(20), range(10), [7], []]
    answers = [taken(window.in_order(items, answer)) for items in all_items]
    assert await asyncio.gather(*answers) == [[10 * item for item in items] for items in all_items]
    assert most == min(size, 31)


async def test_an_answer_is_yielded_before_later_ones_are_there() -> None:
    may_end = asyncio.Event()

    async def answer(item: int) -> int:
        if item:
            await may_end.wait()
        return item

    answers = Window(2).in_order(range(2), answer)
    assert (await anext(answers)).result() == 0
    may_end.set()
    assert await taken(answers) == [1]


@pytest.mark.parametrize("items", [1, 5])
async def test_cancelling_ends_all_under_way_and_frees_their_places(items: int) -> None:
    ended = []
    window = Window(2)

    async def answer(item: int) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)
        return item

    task = asyncio.create_task(taken(window.in_order(range(items), answer)))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == list(range(min(2, items)))
    assert await taken(window.in_order(range(3), _echo)) == [0, 1, 2]


async def test_leaving_early_cancels_the_others_and_frees_their_places() -> None:
    ended = []
    window = Window(2)

    async def answer(item: int) -> int:
        try:
            await asyncio.sleep(0 if item == 0 else 60)
        finally:
            ended.append(item)
        return item

    answers = window.in_order(range(5), answer)
    assert (await anext(answers)).result() == 0
    await asyncio.sleep(0)
    await answers.aclose()
    assert ended[0] == 0 and set(ended) <= {0, 1, 2}
    assert await taken(window.in_order(range(3), _echo)) == [0, 1, 2]


async def test_the_first_failure_in_order_ends_them_all() -> None:
    ended = []

    async def answer(item: int) -> int:
        if item == 1:
            raise ZeroDivisionError("the second")
        if item:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(item)
        return item

    answers = Window(4).in_order(range(4), answer)
    assert (await anext(answers)).result() == 0
    with pytest.raises(ZeroDivisionError, match="the second"):
        await taken(answers)
    assert sorted(ended) == [2, 3]


async def _echo(item: int) -> int:
    await asyncio.sleep(0)
    return item
