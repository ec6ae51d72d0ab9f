"""One request in the engine, as a coroutine sees it: slow and impatient readers."""

from __future__ import annotations

from typing import cast

import pytest

from seqserve_server.engine.engine import Engine
from seqserve_server.engine.request import (
    DecodingOptions,
    Failed,
    Finished,
    Progress,
    Request,
    StopReason,
)
from seqserve_server.errors import EngineFault, QueueFull
from seqserve_server.rpc.call import EngineCall

ANSWER = Finished(token_ids=[1, 2, 3], score=-1.0, stop_reason=StopReason.EOS)


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


def call(engine: Notes, remaining_s: float | None = None) -> EngineCall:
    return EngineCall(
        cast(Engine, engine),
        [7, 2],
        DecodingOptions(max_decoding_length=5),
        arrived_s=100.0,
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
    assert [tokens async for tokens in progress] in ([[3]], [])
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


async def test_passed_deadline_is_left_to_the_engine() -> None:
    # It counts as one there; cancelled, it would count as a caller who went away.
    engine = Notes()
    waiting = call(engine, remaining_s=0.5)
    assert waiting.request.deadline_s == 100.5
    progress = waiting.progress()
    waiting.request.receive(Progress([1]))
    await anext(progress)
    await progress.aclose()
    assert engine.cancelled == []


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
