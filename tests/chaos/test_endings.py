"""A busy server ends: on SIGTERM it finishes its calls; after SIGKILL clients notice at once."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.endless_model import MAX_TARGET
from tests.support.process import ONCE, PATIENCE_S, ServerProcess, eventually, reached

from seqserve import AsyncClient, CallError, Result
from seqserve.errors import Unavailable
from seqserve.results import StopReason

from .conftest import PATIENT

SOURCES = ("The old train waits for", "Nobody", "Our scorer paints")
LENGTHS: dict[str, Any] = {"min_decoding_length": 1500, "max_decoding_length": 1500}
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET}
EACH = 4
"""Calls of each kind."""
SLOTS = 8
BATCH, BULK = 12, 6
"""Sources of each batch, more than there are slots, and of each bulk call."""
OPTIONS = ("--slots", str(SLOTS), "--workers", "2", "--log-format", "json", *PATIENT)
AT_ONCE_S = 20.0
"""Far less than the timeouts that would end a call in the end."""

pytestmark = pytest.mark.chaos


class Callers:
    """Clients with calls of every kind, so many that some must wait."""

    def __init__(self, client: AsyncClient, **options: Any) -> None:
        self._client, self._options = client, options or LENGTHS

    async def _one(self, source: str) -> list[Result]:
        return [await self._client.generate(source, **self._options)]

    async def stream(self, source: str) -> list[Result]:
        pieces = [piece async for piece in self._client.stream(source, **self._options)]
        result = pieces[-1].result
        assert result is not None and "".join(piece.text for piece in pieces) == result.text
        return [result]

    async def _batch(self, source: str) -> list[Result]:
        outcomes = await self._client.generate_batch([source] * BATCH, **self._options)
        assert len(outcomes) == BATCH
        return whole(outcomes)

    async def _bulk(self, source: str) -> list[Result]:
        answers = self._client.generate_bulk([source] * BULK, **self._options)
        outcomes = [outcome async for _, outcome in answers]
        assert len(outcomes) == BULK
        return whole(outcomes)

    def begin(self) -> list[asyncio.Task[list[Result]]]:
        kinds: tuple[Callable[[str], Any], ...] = (self._one, self.stream, self._batch, self._bulk)
        return [
            asyncio.create_task(kind(SOURCES[number % len(SOURCES)]))
            for kind in kinds
            for number in range(EACH)
        ]


def whole(outcomes: list[Result | CallError]) -> list[Result]:
    """Returns the results, all of which must be present."""
    results = []
    for outcome in outcomes:
        if isinstance(outcome, CallError):
            raise outcome
        results.append(outcome)
    return results


Calls = list[asyncio.Task[list[Result]]]


async def begun(client: AsyncClient, server: ServerProcess) -> tuple[Calls, Calls, list[Any]]:
    """Begins calls that run and those that wait, for slots that the last ones hold until they are
    cancelled: then none of them is answered too early for what the test does."""
    await reached(client)
    limited = Callers(client, time_limit_ms=1000, **ENDLESS)
    running = [asyncio.create_task(limited.stream(SOURCES[0])) for _ in range(EACH)]
    held = [asyncio.create_task(client.generate(SOURCES[0], **ENDLESS)) for _ in range(SLOTS)]
    await eventually(
        lambda: server.under_way() + sum(call.done() for call in running) == EACH + SLOTS
    )
    waiting = Callers(client).begin()
    # A batch submits what can run, and half as many.
    rows = EACH * (2 + SLOTS + SLOTS // 2 + BULK)
    await eventually(lambda: server.under_way() >= rows + SLOTS)
    return running, waiting, held


def codes_in_log(server: ServerProcess) -> Counter[str]:
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    calls = [line for line in lines if line["event"] == "call"]
    return Counter(each["code"] for each in calls if each["method"].startswith("Generation"))


async def test_accepted_calls_finish(repository: Path, tmp_path: Path) -> None:
    with ServerProcess(repository, tmp_path, *OPTIONS, "--drain-timeout-s", "120") as server:
        async with AsyncClient(server.target, retry=ONCE, timeout_s=120.0) as client:
            running, calls, held = await begun(client, server)
            server.signal(signal.SIGTERM)
            told_s = time.perf_counter()
            await eventually(lambda: server.get("/readyz")[0] == 503)
            refused = Callers(client).begin()
            for error in await asyncio.gather(*refused, return_exceptions=True):
                assert isinstance(error, Unavailable) and error.retry_after_s is not None
            assert not any(call.done() for call in calls)
            for [result] in await asyncio.gather(*running):
                assert result.stop_reason is StopReason.TIME_LIMIT
            for call in held:
                call.cancel()
            results = [result for one in await asyncio.gather(*calls) for result in one]
            finished_s = time.perf_counter() - told_s
        assert await asyncio.to_thread(server.wait) == 0
        ended_s = time.perf_counter() - told_s
    print(f"\nlast answer {finished_s:.1f} s after SIGTERM, its end after {ended_s:.1f} s")
    assert len(results) == EACH * (2 + BATCH + BULK)
    assert len({result.hypotheses for result in results}) == len(SOURCES)
    assert ended_s < finished_s + AT_ONCE_S
    assert server.engines() == []
    codes = {"OK": 5 * EACH, "UNAVAILABLE": len(refused), "CANCELLED": SLOTS}
    assert codes_in_log(server) == codes
    assert "Traceback" not in server.stderr


async def test_clients_notice_a_kill_at_once(repository: Path, tmp_path: Path) -> None:
    with ServerProcess(repository, tmp_path, *OPTIONS) as server:
        async with AsyncClient(server.target, retry=ONCE, timeout_s=PATIENCE_S) as client:
            running, calls, held = await begun(client, server)
            server.signal(signal.SIGKILL)
            killed_s = time.perf_counter()
            errors = await asyncio.gather(*calls, *held, return_exceptions=True)
            ended = await asyncio.gather(*running, return_exceptions=True)
            known_s = time.perf_counter() - killed_s
        assert await asyncio.to_thread(server.wait) == -signal.SIGKILL
        await eventually(lambda: not server.engines())
        gone_s = time.perf_counter() - killed_s
    print(f"\ncallers knew {known_s:.2f} s after SIGKILL, the engine was gone after {gone_s:.2f} s")
    assert all(isinstance(error, Unavailable) for error in errors), errors
    assert all(isinstance(each, Unavailable | list) for each in ended), ended
    assert known_s < AT_ONCE_S
