"""Memory stays flat: a real server, random shapes, clients that stream, cancel and leave."""

import asyncio
import contextlib
import math
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.resources import TOLERANCE_MB, growth_mb, memory_mb
from tests.support.process import MODELS, PATIENCE_S, ServerProcess, until
from tests.tiny import SENTENCES

from seqserve import AsyncClient

DURATION_S = float(os.environ.get("SEQSERVE_SOAK_S", "600"))
CALLERS = 48
WARM = 10 * CALLERS
"""Answers after which nothing more is new, however long they take."""
TEXT = "the coffee tastes good and nobody waits for our old train near a quiet garden"
WORDS = TEXT.split()

pytestmark = pytest.mark.soak


class Traffic:
    """Clients with requests of random shapes."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.until_s = math.inf
        self.answers = 0
        self.cancelled = 0

    async def caller(self, seed: int) -> None:
        draw = random.Random(seed)
        is_recurrent = seed % 4 == 0
        while time.monotonic() < self.until_s:
            text, options = (_for_tiny if is_recurrent else _for_shipped)(draw)
            kind = draw.random()
            if kind < 0.1:
                await self._given_up(text, options, draw.random() / 50)
            elif kind < 0.3:
                async for _ in self._client.stream(text, **options):
                    pass
                self.answers += 1
            elif kind < 0.35:
                async for _ in self._client.generate_bulk([text] * 8, **options):
                    self.answers += 1
            else:
                await self._client.generate(text, **options)
                self.answers += 1
            if draw.random() < 0.05:
                await asyncio.sleep(draw.random())

    async def _given_up(self, text: str, options: dict[str, Any], patience_s: float) -> None:
        call = asyncio.create_task(self._client.generate(text, **options))
        await asyncio.sleep(patience_s)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        self.cancelled += 1


def _for_shipped(draw: random.Random) -> tuple[str, dict[str, Any]]:
    text = " ".join(draw.choices(WORDS, k=draw.choice((1, 5, 12, 25, 40))))
    return text, {"model": "en-de", "max_decoding_length": draw.choice((1, 8, 40, 128))}


def _for_tiny(draw: random.Random) -> tuple[str, dict[str, Any]]:
    options = {"max_decoding_length": draw.choice((1, 8, 20)), "beam_size": draw.choice((1, 4))}
    return draw.choice(SENTENCES), {"model": "tiny", **options}


@pytest.fixture
def models(tmp_path: Path, tiny_ssru_artifact: Path) -> Path:
    """The shipped model, and a small one with a recurrent decoder."""
    shutil.copytree(tiny_ssru_artifact.parent, tmp_path / "models" / "tiny")
    return Path(shutil.copytree(MODELS, tmp_path / "models", dirs_exist_ok=True))


async def watched(server: ServerProcess) -> tuple[Traffic, list[float]]:
    """Runs the traffic while it reads the server's memory every second, once it is warm."""
    samples = []
    async with AsyncClient(server.target, timeout_s=PATIENCE_S) as client:
        traffic = Traffic(client)
        callers = asyncio.gather(*(traffic.caller(seed) for seed in range(CALLERS)))
        async with asyncio.timeout(10 * PATIENCE_S):
            while traffic.answers < WARM and not callers.done():
                await asyncio.sleep(0.1)
        traffic.until_s = time.monotonic() + DURATION_S
        while not callers.done():
            await asyncio.sleep(1.0)
            samples.append(memory_mb(server))
        await callers
    return traffic, samples


def test_memory_is_flat_after_warm_up(models: Path, tmp_path: Path) -> None:
    # An engine that is restarted would hide its memory.
    with ServerProcess(models, tmp_path, "--log-level", "warning").unharmed() as server:
        began = memory_mb(server)
        traffic, samples = asyncio.run(watched(server))
        until(server.is_idle)
        print(
            f"{traffic.answers} answers, {traffic.cancelled} given up, {len(samples)} s;"
            f" its memory {began:.0f} MB at the start, then {growth_mb(samples):.1f} more,"
            f" {max(samples):.1f} at most"
        )
        assert traffic.answers > WARM + CALLERS and traffic.cancelled > 0
        assert growth_mb(samples) < TOLERANCE_MB
