import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.clock import Clock
from tests.support.loop import settled

from seqserve_server.contract.events import Progress
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.generate import engine_call
from seqserve_server.front.generate.engine_call import (
    INTERVAL_S,
    UNTHROTTLED_STREAMS,
    EngineCall,
    answer_of,
)
from seqserve_server.front.telemetry.call_record import CallRecord


class Engine:
    """Has so many requests in flight, and writes a token when the test says so."""

    def __init__(self, pending: int) -> None:
        self.pending = pending
        self.write: Receive

    def submit(self, spec: Spec, receive: Receive) -> int:
        self.write = receive
        return 1

    def cancel(self, request_id: int, *, is_late: bool) -> None:
        pass


async def sent(pending: int, pause_s: float, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Writes nine tokens with pauses between them; returns how many came with each of them."""
    clock = Clock()
    monkeypatch.setattr(engine_call, "time", SimpleNamespace(monotonic=clock))
    engine, options = Engine(pending), DecodingOptions(max_decoding_length=9)
    spec = GenerateSpec(source=[7, 2], options=options, streamed=True)
    record = CallRecord(path="/s/m", request_id="1")
    stream = EngineCall[Any](cast(Any, engine), spec, record, answer_of)
    got: list[int] = []

    async def read() -> None:
        async for tokens in stream.progress():
            got[-1] += len(tokens)

    reading = asyncio.create_task(read())
    await settled()
    for token in range(9):
        got.append(0)
        engine.write(Progress([token]), None)
        await settled()
        clock.now_s += pause_s
    reading.cancel()
    return got


async def test_tokens_of_many_streams_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    got = await sent(UNTHROTTLED_STREAMS + 1, 0.4 * INTERVAL_S, monkeypatch)
    assert got == [1, 0, 0, 3, 0, 0, 3, 0, 0]


async def test_every_token_of_few_streams_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await sent(UNTHROTTLED_STREAMS, 0.0, monkeypatch) == [1] * 9


async def test_tokens_that_come_slowly_never_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await sent(UNTHROTTLED_STREAMS + 1, INTERVAL_S, monkeypatch) == [1] * 9
