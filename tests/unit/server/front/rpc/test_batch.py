"""Many sources: all at once, but no more than can run."""

from __future__ import annotations

import asyncio

import pytest

from seqserve_server.front.rpc.batch import answer_all


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
