"""Requests that wait for an equal one: they share its answer, and nothing that is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from seqserve_server.contract.errors import (
    DeadlinePassed,
    EngineFault,
    QueueFull,
    ServiceError,
    Stage,
)
from seqserve_server.front.models.answer_cache import SingleFlight


class Work:
    """Work whose ends the test gives, in the order in which it begins."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[str]] = []

    async def __call__(self) -> str:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]


@pytest.fixture
def work() -> Work:
    return Work()


async def shared(
    flights: SingleFlight[str], work: Callable[[], Awaitable[str]], key: str = "k"
) -> str:
    if (answer := await flights.join(key)) is not None:
        return answer
    return await flights.run(key, work)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def started(count: int, work: Work, key: str = "k") -> list[asyncio.Task[str]]:
    flights = SingleFlight[str]()
    tasks = [asyncio.create_task(shared(flights, work, key)) for _ in range(count)]
    await settle()
    return tasks


async def test_equal_requests_share_one_answer(work: Work) -> None:
    tasks = await started(3, work)
    [flight] = work.begun
    flight.set_result("answer")
    assert await asyncio.gather(*tasks) == ["answer"] * 3


async def test_the_next_one_after_the_answer_runs_again(work: Work) -> None:
    flights = SingleFlight[str]()
    for answer in ("first", "second"):
        task = asyncio.create_task(shared(flights, work))
        await settle()
        work.begun[-1].set_result(answer)
        assert await task == answer


async def test_others_run_beside_it(work: Work) -> None:
    flights = SingleFlight[str]()
    tasks = [asyncio.create_task(shared(flights, work, key)) for key in "ab"]
    await settle()
    assert len(work.begun) == 2
    for flight, answer in zip(work.begun, "AB", strict=True):
        flight.set_result(answer)
    assert await asyncio.gather(*tasks) == ["A", "B"]


@pytest.mark.parametrize(
    "own", [QueueFull("full", 1.0), DeadlinePassed(Stage.QUEUE), asyncio.CancelledError()]
)
async def test_the_end_of_one_by_itself_is_not_that_of_the_others(
    work: Work, own: BaseException
) -> None:
    first, *others = await started(3, work)
    if isinstance(own, asyncio.CancelledError):
        first.cancel()
    else:
        work.begun[0].set_exception(own)
    with pytest.raises(type(own)):
        await first
    await settle()
    assert len(work.begun) == 2, "one goes on, for which the other one waits"
    work.begun[1].set_result("answer")
    assert await asyncio.gather(*others) == ["answer"] * 2


async def test_a_failure_of_the_model_is_that_of_all(work: Work) -> None:
    tasks = await started(3, work)
    work.begun[0].set_exception(EngineFault("a step failed"))
    failures: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(failure) for failure in failures] == ["a step failed"] * 3
    assert all(isinstance(failure, ServiceError) for failure in failures)
    assert len(work.begun) == 1


async def test_an_error_of_ours_is_not_that_of_the_others(work: Work) -> None:
    first, other = await started(2, work)
    work.begun[0].set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await first
    await settle()
    work.begun[1].set_result("answer")
    assert await other == "answer"


async def test_who_stops_waiting_disturbs_nobody(work: Work) -> None:
    first, impatient, other = await started(3, work)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    work.begun[0].set_result("answer")
    assert await asyncio.gather(first, other) == ["answer"] * 2
    assert len(work.begun) == 1
