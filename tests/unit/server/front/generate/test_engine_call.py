import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from seqserve_server.contract.errors import EngineFault, QueueFull
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Hypothesis,
    Progress,
    StopReason,
    Timeline,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.generate.engine_call import EngineCall, answer_of
from seqserve_server.front.telemetry.call_record import CallRecord

ANSWER = Finished([Hypothesis([1, 2, 3], -1.0, StopReason.EOS)])


class FakeEngine:
    """Stands in for the engine; the test gives its events."""

    pending = 1

    def __init__(self, error: Exception | None = None) -> None:
        self.specs: list[Spec] = []
        self.cancelled: list[tuple[int, bool]] = []
        self._receivers: list[Receive] = []
        self._error = error

    def submit(self, spec: Spec, receive: Receive) -> int:
        if self._error:
            raise self._error
        self.specs.append(spec)
        self._receivers.append(receive)
        return len(self.specs) - 1

    def cancel(self, request_id: int, *, is_late: bool) -> None:
        self.cancelled.append((request_id, is_late))

    def send(self, event: Event, **timeline: float) -> None:
        is_last = not isinstance(event, Progress)
        self._receivers[-1](event, Timeline(**timeline) if is_last else None)


def call(
    engine: FakeEngine,
    age_s: float = 0.0,
    remaining_s: float | None = None,
    is_bulk: bool = False,
    **options: Any,
) -> EngineCall[Finished]:
    arrived_s = time.monotonic() - age_s
    spec = GenerateSpec(
        source=[7, 2],
        options=DecodingOptions(max_decoding_length=5, **options),
        arrived_s=arrived_s,
        deadline_s=None if remaining_s is None else arrived_s + remaining_s,
        streamed=True,
        is_bulk=is_bulk,
    )
    record = CallRecord(path="/s/m", request_id="1")
    return EngineCall(cast(EngineGroup, engine), spec, record, answer_of)


async def begun(coroutine: Any) -> asyncio.Future[Any]:
    """Starts a coroutine and lets it run until it waits."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    return task


async def test_unread_tokens_are_merged() -> None:
    engine = FakeEngine()
    waiting = call(engine)
    progress = waiting.progress()
    first = await begun(anext(progress))
    engine.send(Progress([1]))
    engine.send(Progress([2]))
    assert await first == [1, 2]
    engine.send(Progress([3]))
    engine.send(ANSWER)
    # The last token is in the answer.
    assert [tokens async for tokens in progress] == []
    assert waiting.result() is ANSWER
    assert engine.specs == [waiting.spec] and not engine.cancelled


@pytest.mark.parametrize(
    ("remaining_s", "is_late"), [(9.0, True), (10.05, True), (11.0, False), (None, False)]
)
async def test_leaving_at_the_deadline_counts_as_late(
    remaining_s: float | None, is_late: bool
) -> None:
    engine = FakeEngine()
    waiting = call(engine, age_s=10.0, remaining_s=remaining_s)
    progress = waiting.progress()
    first = await begun(anext(progress))
    engine.send(Progress([1]))
    await first
    await progress.aclose()
    assert engine.cancelled == [(0, is_late)]


async def test_failure_is_raised() -> None:
    engine = FakeEngine()
    finished = await begun(call(engine).begin())
    engine.send(Failed(EngineFault("a step failed")))
    with pytest.raises(EngineFault):
        await finished


async def test_refusal_is_raised_and_nothing_cancelled() -> None:
    engine = FakeEngine(QueueFull("full", 1.0))
    with pytest.raises(QueueFull):
        await call(engine).begin()
    assert engine.cancelled == []


class FullEngine(FakeEngine):
    """Refuses a few times, then answers."""

    def __init__(self, times: int, retry_after_s: float = 0.001) -> None:
        super().__init__()
        self._times, self._retry_after_s = times, retry_after_s

    def submit(self, spec: Spec, receive: Receive) -> int:
        request_id = super().submit(spec, receive)
        is_full = len(self.specs) <= self._times
        self.send(Failed(QueueFull("full", self._retry_after_s)) if is_full else ANSWER)
        return request_id


async def test_one_of_many_tries_again_as_often_as_it_may() -> None:
    engine = FullEngine(20)
    assert await call(engine, is_bulk=True).begin() == ANSWER
    assert len(engine.specs) == 21


async def test_time_limit_of_one_of_many_counts_from_its_arrival() -> None:
    engine = FullEngine(99, retry_after_s=0.02)
    with pytest.raises(QueueFull):
        await call(engine, is_bulk=True, time_limit_s=0.05).begin()
    assert 1 <= len(engine.specs) <= 3


async def test_one_of_many_does_not_try_again_after_its_deadline() -> None:
    engine = FullEngine(99, retry_after_s=5.0)
    with pytest.raises(QueueFull):
        await call(engine, remaining_s=4.0, is_bulk=True).begin()
    assert len(engine.specs) == 1


ATTENDED = Finished([ANSWER.best._replace(attention=b"0123")])


async def test_attention_is_asked_for_in_a_second_request() -> None:
    engine = FakeEngine()
    waiting = call(engine, remaining_s=9.0, return_attention=True)
    finished = await begun(waiting.begin())
    engine.send(ANSWER, encode_began_s=1.0, finished_s=2.0)
    while len(engine.specs) < 2:
        await asyncio.sleep(0)
    assert engine.specs == [waiting.spec, replace(waiting.spec, answer=ANSWER)]
    assert not finished.done()
    engine.send(ATTENDED, encode_began_s=3.0, finished_s=4.0)
    assert await finished == ATTENDED
    assert waiting.timeline.finished_s == 2.0, "times are those of decoding"


async def test_stream_ends_once_the_attention_is_there() -> None:
    engine = FakeEngine()
    waiting = call(engine, return_attention=True)
    progress = waiting.progress()
    first = await begun(anext(progress))
    engine.send(Progress([1]))
    assert await first == [1]
    rest = await begun(anext(progress, None))
    engine.send(ANSWER, encode_began_s=1.0)
    while len(engine.specs) < 2:
        await asyncio.sleep(0)
    engine.send(ATTENDED)
    assert await rest is None
    assert waiting.result() == ATTENDED


async def test_answer_that_never_began_needs_no_attention() -> None:
    engine = FakeEngine()
    finished = await begun(call(engine, return_attention=True).begin())
    engine.send(ANSWER)
    assert await finished == ANSWER
    assert len(engine.specs) == 1


async def test_leaving_before_the_attention_is_there_cancels_the_second_request() -> None:
    engine = FakeEngine()
    finished = await begun(call(engine, return_attention=True).begin())
    engine.send(ANSWER, encode_began_s=1.0)
    while len(engine.specs) < 2:
        await asyncio.sleep(0)
    finished.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finished
    assert engine.cancelled == [(1, False)]
