import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from seqserve._async.calls import CallGroup as AsyncCallGroup
from seqserve._async.calls import WorkerPool as AsyncWorkerPool
from seqserve._sync.calls import CallGroup, WorkerPool
from seqserve._transport.connection import Method
from seqserve.arguments import WINDOW
from seqserve.errors import Cancelled, InvalidArgument
from seqserve.v1 import generation_pb2

from .fake_server import PATIENCE_S
from .fake_transport import AsyncFakeTransport, FakeTransport

REQUEST = generation_pb2.GenerateRequest()


def test_a_group_within_another_leaves_the_rest_alone() -> None:
    transport = FakeTransport([[], [], []])
    outer = CallGroup(transport)
    first, second = outer.group(), outer.group()
    calls = [each.call(Method.GENERATE, REQUEST, None) for each in (outer, first, second)]
    first.cancel()
    assert [call.is_cancelled for call in transport.calls] == [False, True, False]
    outer.cancel()
    assert [call.is_cancelled for call in transport.calls] == [True] * 3 and len(calls) == 3
    with pytest.raises(Cancelled):
        second.wait(PATIENCE_S)


def test_a_call_opened_while_the_group_is_cancelled_is_cancelled() -> None:
    class Slow(FakeTransport):
        def call(self, *arguments: object) -> object:  # type: ignore[override]
            group.cancel()
            return super().call(*arguments)  # type: ignore[arg-type]

    transport = Slow([[]])
    group = CallGroup(transport)
    with pytest.raises(Cancelled):
        group.call(Method.GENERATE, REQUEST, None)
    assert transport.calls[0].is_cancelled


async def test_a_waiting_task_can_be_cancelled() -> None:
    group = AsyncCallGroup(AsyncFakeTransport([]))
    waiting = asyncio.create_task(group.wait(PATIENCE_S))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_cancelled_group_waits_for_nothing() -> None:
    group = AsyncCallGroup(AsyncFakeTransport([]))
    group.cancel()
    with pytest.raises(Cancelled):
        await asyncio.wait_for(group.wait(10 * PATIENCE_S), PATIENCE_S)


def double(number: int) -> int:
    if number == 13:
        raise ValueError("unlucky")
    return 2 * number


def test_an_outcome_is_yielded_while_the_input_blocks() -> None:
    assert list(WorkerPool(double, [], concurrency=3).outcomes()) == []
    answered = threading.Event()

    def slow_input() -> Iterator[int]:
        yield 1
        assert answered.wait(PATIENCE_S)
        yield 2

    outcomes = WorkerPool(double, slow_input(), concurrency=2).outcomes()
    assert next(outcomes).result() == 2
    answered.set()
    assert [outcome.result() for outcome in outcomes] == [4]


def test_an_endless_input_is_read_no_further_than_the_window() -> None:
    read = itertools.count()
    outcomes = WorkerPool(double, (next(read) for _ in itertools.count()), concurrency=2).outcomes()
    taken = [next(outcomes).result() for _ in range(5)]
    outcomes.close()
    assert taken == [0, 2, 4, 6, 8]
    assert next(read) <= 5 + 2 * WINDOW


def test_a_failing_input_comes_after_the_outcomes_before_it() -> None:
    def failing_input() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    outcomes = list(WorkerPool(double, failing_input(), concurrency=3).outcomes())
    assert outcomes[0].result() == 2
    with pytest.raises(OSError, match="no more"):
        outcomes[1].result()


def test_leaving_ends_the_threads() -> None:
    outcomes = WorkerPool(double, itertools.count(20), concurrency=3).outcomes()
    next(outcomes)
    crew = [thread for thread in threading.enumerate() if thread.name == "seqserve-many"]
    outcomes.close()
    for thread in crew:
        thread.join(PATIENCE_S)
    assert [thread for thread in crew if thread.is_alive()] == []


async def async_double(number: int) -> int:
    await asyncio.sleep(0.001 * (5 - number % 5))
    return double(number)


async def test_async_input_is_read_no_further_than_the_window() -> None:
    read = 0

    async def endless() -> AsyncIterator[int]:
        nonlocal read
        while True:
            read += 1
            yield 20

    outcomes = AsyncWorkerPool(async_double, endless(), 2).outcomes()
    taken = [(await anext(outcomes)).result() for _ in range(5)]
    await outcomes.aclose()
    assert taken == [40] * 5
    # One item beyond the window is read and waits for room.
    assert read <= 5 + 2 * WINDOW + 1


async def test_async_failing_input_comes_after_the_outcomes_before_it() -> None:
    async def failing_input() -> AsyncIterator[int]:
        yield 1
        raise OSError("no more")

    outcomes = AsyncWorkerPool(async_double, failing_input(), 3).outcomes()
    assert (await anext(outcomes)).result() == 2
    with pytest.raises(OSError, match="no more"):
        (await anext(outcomes)).result()


async def test_leaving_ends_the_tasks() -> None:
    ended: list[str] = []

    async def hang(number: int) -> int:
        if number == 0:
            return 0
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.append("cancelled")
        return number

    outcomes = AsyncWorkerPool(hang, range(3), 3).outcomes()
    await anext(outcomes)
    await outcomes.aclose()
    assert ended == ["cancelled"] * 2


@pytest.mark.parametrize("concurrency", [0, -3])
async def test_concurrency_is_at_least_one(concurrency: int) -> None:
    with pytest.raises(InvalidArgument, match="concurrency"):
        WorkerPool(double, [1], concurrency).outcomes()
    with pytest.raises(InvalidArgument, match="concurrency"):
        await anext(AsyncWorkerPool(async_double, [1], concurrency).outcomes())
