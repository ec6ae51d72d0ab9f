"""Requests of a batch get their own answers, and one that was given up costs nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from bench.batcher import Batcher

Rows = list[list[int]]


@asynccontextmanager
async def batcher_of(
    decode: Callable[[Sequence[list[int]]], Rows], *, workers: int = 1, rows: int = 4
) -> AsyncIterator[Batcher]:
    batcher = Batcher(decode, workers=workers, rows=rows, delay_s=0.01)
    try:
        yield batcher
    finally:
        await asyncio.to_thread(batcher.close)


async def test_each_request_gets_its_own_target() -> None:
    sizes: list[int] = []

    def reverse(sources: Sequence[list[int]]) -> Rows:
        sizes.append(len(sources))
        return [source[::-1] for source in sources]

    async with batcher_of(reverse) as batcher:
        sources = [[number, number + 1] for number in range(10)]
        targets = await asyncio.gather(*(batcher.decode(source) for source in sources))
    assert targets == [source[::-1] for source in sources]
    assert sizes == [4, 4, 2]


async def test_workers_run_batches_at_once() -> None:
    # Only two that meet here get through.
    both = threading.Barrier(2, timeout=30.0)

    def meet(sources: Sequence[list[int]]) -> Rows:
        both.wait()
        return list(sources)

    async with batcher_of(meet, workers=2, rows=1) as batcher:
        assert await asyncio.gather(batcher.decode([1]), batcher.decode([2])) == [[1], [2]]


async def test_request_that_was_given_up_is_not_decoded() -> None:
    seen: Rows = []

    def note(sources: Sequence[list[int]]) -> Rows:
        seen.extend(sources)
        return list(sources)

    async with batcher_of(note) as batcher:
        given_up = asyncio.ensure_future(batcher.decode([1]))
        kept = asyncio.ensure_future(batcher.decode([2]))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await kept == [2]
    assert seen == [[2]]


async def test_failing_batch_fails_its_requests_only() -> None:
    def fail_first(sources: Sequence[list[int]]) -> Rows:
        if [1] in sources:
            raise ValueError("not today")
        return list(sources)

    async with batcher_of(fail_first) as batcher:
        with pytest.raises(ValueError, match="not today"):
            await batcher.decode([1])
        assert await batcher.decode([2]) == [2]
