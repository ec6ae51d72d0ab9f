import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from bench.drivers.batch_server import Batcher, BatchQueue

Rows = list[list[int]]
LONG_S = 30.0


@asynccontextmanager
async def batcher_of(
    decode: Callable[[Sequence[list[int]]], Rows], *, workers: int = 1, rows: int = 4
) -> AsyncIterator[Batcher[list[int]]]:
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


def test_a_full_batch_does_not_wait() -> None:
    queue: BatchQueue[int] = BatchQueue(3, LONG_S)
    for item in range(7):
        queue.put(item)
    assert queue.take() == [0, 1, 2]
    assert queue.take() == [3, 4, 5]


def test_an_item_waits_for_others_as_long_as_the_delay() -> None:
    queue: BatchQueue[int] = BatchQueue(3, 0.05)
    queue.put(1)
    began_s = time.monotonic()
    assert queue.take() == [1]
    assert time.monotonic() - began_s > 0.04
    queue = BatchQueue(3, 0.0)
    queue.put(1)
    queue.put(2)
    assert queue.take() == [1, 2]


def test_the_last_item_of_a_batch_wakes_its_taker() -> None:
    queue: BatchQueue[int] = BatchQueue(2, LONG_S)
    queue.put(1)
    threading.Timer(0.02, queue.put, (2,)).start()
    assert queue.take() == [1, 2]


def test_a_closed_queue_gives_the_rest_and_wakes_all_takers() -> None:
    queue: BatchQueue[int] = BatchQueue(3, LONG_S)
    queue.put(1)
    queue.close()
    assert queue.take() == [1]
    assert queue.take() == []
    queue = BatchQueue(3, LONG_S)
    takers = [threading.Thread(target=queue.take) for _ in range(3)]
    for taker in takers:
        taker.start()
    queue.close()
    for taker in takers:
        taker.join(LONG_S)
        assert not taker.is_alive()


def test_several_takers_get_every_item_once_and_in_order() -> None:
    queue: BatchQueue[int] = BatchQueue(4, 0.001)
    batches: list[list[int]] = []

    def take() -> None:
        while batch := queue.take():
            batches.append(batch)
            time.sleep(0.0005)

    takers = [threading.Thread(target=take) for _ in range(2)]
    for taker in takers:
        taker.start()
    for item in range(500):
        queue.put(item)
        if item % 23 == 0:
            time.sleep(0.002)
    queue.close()
    for taker in takers:
        taker.join(LONG_S)
    assert all(1 <= len(batch) <= 4 and batch == sorted(batch) for batch in batches)
    assert sorted(item for batch in batches for item in batch) == list(range(500))
