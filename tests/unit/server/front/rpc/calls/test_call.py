"""One request in the engine, as a coroutine sees it: slow and impatient readers."""

from __future__ import annotations

import math
import time
from typing import cast

import pytest

from seqserve_server.contract.errors import EngineFault, QueueFull
from seqserve_server.contract.events import Failed, Finished, Hypothesis, Progress, StopReason
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Request
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.rpc.calls.call import EngineCall

ANSWER = Finished([Hypothesis([1, 2, 3], -1.0, StopReason.EOS)])


class Notes:
    """Stands where the engine would be, and notes what it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.submitted: list[Request] = []
        self.cancelled: list[Request] = []
        self._error = error

    def submit(self, request: Request) -> None:
        if self._error:
            raise self._error
        self.submitted.append(request)

    def cancel(self, request: Request) -> None:
        self.cancelled.append(request)


def call(
    engine: Notes,
    age_s: float = 0.0,
    remaining_s: float | None = None,
    time_limit_s: float = math.inf,
) -> EngineCall:
    return EngineCall(
        cast(RemoteEngine, engine),
        [7, 2],
        DecodingOptions(max_decoding_length=5, time_limit_s=time_limit_s),
        arrived_s=time.monotonic() - age_s,
        remaining_s=remaining_s,
        streamed=True,
    )


async def test_what_nobody_fetched_yet_is_merged() -> None:
    engine = Notes()
    waiting = call(engine)
    progress = waiting.progress()
    first = anext(progress)
    waiting.request.receive(Progress([1]))
    waiting.request.receive(Progress([2]))
    assert await first == [1, 2]
    waiting.request.receive(Progress([3]))
    waiting.request.receive(ANSWER)
    # The rest is in the answer.
    assert [tokens async for tokens in progress] == []
    assert waiting.result() is ANSWER
    assert engine.submitted == [waiting.request] and not engine.cancelled


async def test_leaving_early_cancels() -> None:
    engine = Notes()
    waiting = call(engine)
    progress = waiting.progress()
    waiting.request.receive(Progress([1]))
    await anext(progress)
    await progress.aclose()
    assert engine.cancelled == [waiting.request]


@pytest.mark.parametrize(
    ("remaining_s", "is_late"), [(9.0, True), (10.05, True), (11.0, False), (None, False)]
)
async def test_leaving_at_the_deadline_counts_as_late(
    remaining_s: float | None, is_late: bool
) -> None:
    engine = Notes()
    waiting = call(engine, age_s=10.0, remaining_s=remaining_s)
    progress = waiting.progress()
    waiting.request.receive(Progress([1]))
    await anext(progress)
    await progress.aclose()
    assert engine.cancelled == [waiting.request]
    deadline_s = waiting.request.deadline_s
    assert (deadline_s is not None and deadline_s <= time.monotonic()) is is_late


async def test_failure_is_raised() -> None:
    error = EngineFault("a step failed")
    waiting = call(Notes())
    waiting.request.receive(Failed(error))
    with pytest.raises(EngineFault):
        await waiting.finished()


async def test_refusal_is_raised_and_nothing_cancelled() -> None:
    engine = Notes(QueueFull("full", 1.0))
    with pytest.raises(QueueFull):
        await call(engine).finished()
    assert engine.cancelled == []


class Full(Notes):
    """Refuses a few times, then answers."""

    def __init__(self, times: int, retry_after_s: float = 0.001) -> None:
        super().__init__()
        self.times, self._retry_after_s = times, retry_after_s

    def submit(self, request: Request) -> None:
        super().submit(request)
        is_full = len(self.submitted) <= self.times
        error = QueueFull("full", self._retry_after_s)
        request.receive(Failed(error) if is_full else ANSWER)


async def test_one_of_many_comes_back_when_it_is_told_to() -> None:
    engine = Full(3)
    assert await call(engine).finished_in_time() == ANSWER
    assert len(engine.submitted) == 4


async def test_one_of_many_gives_up_at_last() -> None:
    engine = Full(99)
    with pytest.raises(QueueFull):
        await call(engine).finished_in_time()
    assert len(engine.submitted) == 9


async def test_one_of_many_comes_back_as_often_as_it_may() -> None:
    engine = Full(20)
    assert await call(engine).finished_in_time(max_refusals=math.inf) == ANSWER
    assert len(engine.submitted) == 21


async def test_time_limit_of_one_of_many_counts_from_its_arrival() -> None:
    engine = Full(99, retry_after_s=0.02)
    with pytest.raises(QueueFull):
        await call(engine, time_limit_s=0.05).finished_in_time(max_refusals=math.inf)
    assert 1 <= len(engine.submitted) <= 3


async def test_one_of_many_does_not_come_back_after_its_deadline() -> None:
    engine = Full(99, retry_after_s=5.0)
    with pytest.raises(QueueFull):
        await call(engine, remaining_s=4.0).finished_in_time()
    assert len(engine.submitted) == 1
