import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.clock import Clock
from tests.support.loop import settled

from seqserve_server.contract import events
from seqserve_server.contract.errors import EngineFault, QueueFull
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.generate import engine_call
from seqserve_server.front.generate.engine_call import INTERVAL_S, UNTHROTTLED_STREAMS, EngineCall
from seqserve_server.front.telemetry.call_record import CallRecord

ANSWER = events.Finished([events.Hypothesis([1, 2, 3], -1.0, events.StopReason.EOS)])
OPTIONS = DecodingOptions(max_decoding_length=5)
SPEC = GenerateSpec(source=[7, 2], options=OPTIONS, streamed=True)
RECORD = CallRecord(path="/s/m", request_id="1")


class FakeEngine:
    """Stands in for the engine; the test gives its events."""

    def __init__(self, error: Exception | None = None, pending: int = 1) -> None:
        self.pending = pending
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

    def send(self, event: events.Event, **timeline: float) -> None:
        is_last = not isinstance(event, events.Progress)
        self._receivers[-1](event, events.Timeline(**timeline) if is_last else None)


def call(
    engine: FakeEngine,
    age_s: float = 0.0,
    remaining_s: float | None = None,
    is_bulk: bool = False,
    **options: Any,
) -> EngineCall[events.Finished]:
    arrived_s = time.monotonic() - age_s
    spec = replace(
        SPEC,
        options=replace(OPTIONS, **options),
        arrived_s=arrived_s,
        deadline_s=None if remaining_s is None else arrived_s + remaining_s,
        is_bulk=is_bulk,
    )
    return EngineCall(cast(EngineGroup, engine), spec, RECORD, engine_call.answer_of)


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
    engine.send(events.Progress([1]))
    engine.send(events.Progress([2]))
    assert await first == [1, 2]
    engine.send(events.Progress([3]))
    engine.send(ANSWER)
    # The last token is in the answer.
    assert [tokens async for tokens in progress] == []
    assert waiting.result() is ANSWER
    assert engine.specs == [waiting.spec] and not engine.cancelled


@pytest.mark.parametrize(
    ("remaining_s", "is_late"), [(9.0, True), (10.05, True), (11.0, False), (None, False)]
)
async def test_leaving_at_a_deadline_is_late(remaining_s: float | None, is_late: bool) -> None:
    engine = FakeEngine()
    waiting = call(engine, age_s=10.0, remaining_s=remaining_s)
    progress = waiting.progress()
    first = await begun(anext(progress))
    engine.send(events.Progress([1]))
    await first
    await progress.aclose()
    assert engine.cancelled == [(0, is_late)]


async def test_failures_and_refusals_are_raised_and_nothing_cancelled() -> None:
    failing, full = FakeEngine(), FakeEngine(QueueFull("full", 1.0))
    finished = await begun(call(failing).begin())
    failing.send(events.Failed(EngineFault("a step failed")))
    with pytest.raises(EngineFault):
        await finished
    with pytest.raises(QueueFull):
        await call(full).begin()
    assert failing.cancelled == full.cancelled == []


class FullEngine(FakeEngine):
    """Refuses a few times, then answers."""

    def __init__(self, times: int, retry_after_s: float = 0.001) -> None:
        super().__init__()
        self._times, self._retry_after_s = times, retry_after_s

    def submit(self, spec: Spec, receive: Receive) -> int:
        request_id = super().submit(spec, receive)
        is_full = len(self.specs) <= self._times
        self.send(events.Failed(QueueFull("full", self._retry_after_s)) if is_full else ANSWER)
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


ATTENDED = events.Finished([ANSWER.best._replace(attention=b"0123")])


async def answer_without_attention(engine: FakeEngine, **timeline: float) -> None:
    """Answers the first request, and waits for the second one."""
    engine.send(ANSWER, encode_began_s=1.0, **timeline)
    while len(engine.specs) < 2:
        await asyncio.sleep(0)


async def test_attention_is_asked_for_in_a_second_request() -> None:
    engine = FakeEngine()
    waiting = call(engine, remaining_s=9.0, return_attention=True)
    finished = await begun(waiting.begin())
    await answer_without_attention(engine, finished_s=2.0)
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
    engine.send(events.Progress([1]))
    assert await first == [1]
    rest = await begun(anext(progress, None))
    await answer_without_attention(engine)
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
    await answer_without_attention(engine)
    finished.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finished
    assert engine.cancelled == [(1, False)]


async def sent(pending: int, pause_s: float, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Writes nine tokens with pauses between them; returns how many came with each of them."""
    clock, engine, got = Clock(), FakeEngine(pending=pending), list[int]()
    monkeypatch.setattr(engine_call, "time", SimpleNamespace(monotonic=clock))
    stream = call(engine)

    async def read() -> None:
        async for tokens in stream.progress():
            got[-1] += len(tokens)

    reading = asyncio.create_task(read())
    await settled()
    for token in range(9):
        got.append(0)
        engine.send(events.Progress([token]))
        await settled()
        clock.now_s += pause_s
    reading.cancel()
    return got


@pytest.mark.parametrize(
    ("more_streams", "intervals", "expected"),
    [
        pytest.param(1, 0.4, [1, 0, 0, 3, 0, 0, 3, 0, 0], id="tokens of many are gathered"),
        pytest.param(0, 0.0, [1] * 9, id="each token of few is sent"),
        pytest.param(1, 1.0, [1] * 9, id="tokens that come slowly never wait"),
    ],
)
async def test_streams_are_throttled_where_there_are_many(
    monkeypatch: pytest.MonkeyPatch, more_streams: int, intervals: float, expected: list[int]
) -> None:
    pending = UNTHROTTLED_STREAMS + more_streams
    assert await sent(pending, intervals * INTERVAL_S, monkeypatch) == expected
