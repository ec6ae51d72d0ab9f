"""Ten times what a server can answer, for a minute: it goes on, and serves who asks for little.

How much it answers meanwhile, and how fast, is printed: here those who flood share its cores, and a
refusal costs a call too, so that only a bound far from both is demanded.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
from pathlib import Path

import pytest
from tests.e2e.flood import CALLER, Flood, Load, flood
from tests.e2e.holdings import TOLERANCE_MB, resident_mb
from tests.e2e.process import ServerProcess, until
from tests.soak.test_memory import MODELS, WORDS

SECONDS = float(os.environ.get("SEQSERVE_CHAOS_S", "60"))
TIMES = 10.0
# Beams of long sources, so that it is decoding that is short of time and not those who call, for
# they share the machine.
BEAM_SIZE, LONGEST = 4, 64
SLOTS = 64
LEAST_GOODPUT, LEAST_SERVED = 0.4, 0.9

pytestmark = pytest.mark.chaos


async def watched(server: ServerProcess) -> tuple[Flood, list[float]]:
    """Measures, and reads the server's memory every half second."""
    draw = random.Random(3)
    sources = [" ".join(draw.choices(WORDS, k=draw.randint(30, 60))) for _ in range(200)]
    samples = []
    options = {"beam_size": BEAM_SIZE, "max_decoding_length": LONGEST}
    async with Load(server.target, sources, **options) as load:
        measuring = asyncio.create_task(
            flood(load, slots=SLOTS // BEAM_SIZE, seconds=SECONDS, times=TIMES)
        )
        while not measuring.done():
            await asyncio.sleep(0.5)
            samples.append(resident_mb(server))
        return await measuring, samples


def test_ten_times_the_load(tmp_path: Path) -> None:
    options = ("--slots", str(SLOTS), "--caller-metadata", CALLER, "--log-level", "warning")
    options += ("--max-queue-s", "0.25")
    with ServerProcess(MODELS, tmp_path, *options) as server:
        engines = server.engines()
        found, samples = asyncio.run(watched(server))
        until(server.is_idle)
        # The flood is the last part of four sevenths.
        half = len(samples) // 2
        early, late = (statistics.median(part) for part in (samples[half:][:9], samples[-9:]))
        print(f"goodput {found.goodput:.2f}, quiet callers served {found.served:.3f}")
        print(f"{found}; {found.slowdown:.2f} times as slow; {early:.1f} MB, then {late:.1f} MB")
        assert set(found.flooded.codes) == {"RESOURCE_EXHAUSTED"}
        assert found.goodput >= LEAST_GOODPUT
        assert found.served >= LEAST_SERVED
        assert late - early < TOLERANCE_MB
        assert server.engines() == engines, "one has begun anew, with no memory of before"
        assert "Traceback" not in server.stderr
