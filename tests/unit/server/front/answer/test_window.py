"""Many sources: all at once, but no more than can run."""

from __future__ import annotations

import asyncio

import pytest

from seqserve_server.front.answer.window import answer_all, answers_in_order


@pytest.mark.parametrize("slots", [1, 2, 100])
async def test_answers_are_in_order_and_few_under_way(slots: int) -> None:
    under_way = most = 0

    async def answer(source: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (source % 3))
        under_way -= 1
        return 10 * source

    assert await answer_all(range(20), answer, slots) == [10 * source for source in range(20)]
    assert most == min(slots, 20)


async def test_nothing_has_no_answers() -> None:
    assert await answer_all([], asyncio.sleep, 1) == []


async def test_first_error_ends_them_all() -> None:
    ended = []

    async def answer(source: int) -> int:
        if source == 2:
            raise ZeroDivisionError("the second")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(source)
        return source

    with pytest.raises(ZeroDivisionError, match="the second"):
        await answer_all([0, 1, 2], answer, 3)
    assert sorted(ended) == [0, 1]


async def test_cancel_ends_them_all() -> None:
    ended = []

    async def answer(source: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(source)

    task = asyncio.create_task(answer_all([0, 1, 2], answer, 2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [0, 1]


@pytest.mark.parametrize("slots", [1, 2, 100])
async def test_answers_in_order_share_room_with_others(slots: int) -> None:
    under_way = most = 0
    room = asyncio.Semaphore(slots)

    async def answer(source: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (source % 3))
        under_way -= 1
        return source

    async def answers() -> list[int]:
        return [each async for each in answers_in_order(range(10), answer, room)]

    assert await asyncio.gather(answers(), answers()) == [list(range(10))] * 2
    assert most == min(slots, 20)
    assert not room.locked()


async def test_an_answer_is_yielded_before_later_ones_are_there() -> None:
    may_end = asyncio.Event()

    async def answer(source: int) -> int:
        if source:
            await may_end.wait()
        return source

    answers = answers_in_order(range(2), answer, asyncio.Semaphore(2))
    assert await anext(answers) == 0
    may_end.set()
    assert [each async for each in answers] == [1]


async def test_leaving_early_cancels_the_others_and_frees_the_room() -> None:
    ended = []
    room = asyncio.Semaphore(2)

    async def answer(source: int) -> int:
        try:
            await asyncio.sleep(0 if source == 0 else 60)
        finally:
            ended.append(source)
        return source

    answers = answers_in_order(range(5), answer, room)
    assert await anext(answers) == 0
    await asyncio.sleep(0)
    await answers.aclose()
    assert ended[0] == 0 and set(ended) <= {0, 1, 2}
    assert not room.locked()


async def test_the_first_failure_in_order_ends_the_answers() -> None:
    async def answer(source: int) -> int:
        return 1 // (source - 1)

    answers = answers_in_order(range(3), answer, asyncio.Semaphore(3))
    assert await anext(answers) == -1
    with pytest.raises(ZeroDivisionError):
        await anext(answers)
