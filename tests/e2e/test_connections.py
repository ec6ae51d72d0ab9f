"""Many calls of one client at a server of two fronts, one of which is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.support.process import PATIENCE_S, ServerProcess, eventually
from tests.support.sockets import connections_to

from seqserve import AsyncClient

SOURCES = [f"line number {number}" for number in range(400)]
CONCURRENCY = 160
"""Enough for five connections."""


async def translate(client: AsyncClient) -> list[str]:
    many = client.generate_many(SOURCES, concurrency=CONCURRENCY, max_decoding_length=20)
    return [result.text async for result in many]


async def test_calls_of_a_killed_front_are_answered_by_the_other(
    repository: Path, tmp_path: Path
) -> None:
    with ServerProcess(repository, tmp_path, "--front-processes", "2") as server:
        target = server.target
        async with AsyncClient(target, timeout_s=PATIENCE_S) as client:
            expected = await translate(client)
            assert connections_to(target) >= 4
            job = asyncio.create_task(translate(client))
            await eventually(lambda: server.under_way() > 0)
            os.kill(server.fronts()[0], signal.SIGKILL)
            assert await job == expected
            assert await translate(client) == expected
        await eventually(lambda: not connections_to(target))
        server.stop()
