"""Many calls of one client at a server of two fronts, one of which is killed."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.support.process import PATIENCE_S, ServerProcess, eventually
from tests.support.sockets import connections_to

from seqserve import AsyncClient

SOURCES = [f"line number {number}" for number in range(400)]
CONCURRENCY = 160
"""Enough for five connections."""


async def translate(client: AsyncClient, after_some: Callable[[], None]) -> list[str]:
    many = client.generate_many(SOURCES, concurrency=CONCURRENCY, max_decoding_length=20)
    texts = []
    async for result in many:
        texts.append(result.text)
        if len(texts) == CONCURRENCY // 2:
            after_some()
    return texts


async def test_calls_of_a_killed_front_are_answered_by_the_other(
    repository: Path, tmp_path: Path
) -> None:
    with ServerProcess(repository, tmp_path, "--front-processes", "2") as server:
        target = server.target
        async with AsyncClient(target, timeout_s=PATIENCE_S) as client:
            expected = await translate(client, lambda: None)
            # A front that is slow to answer at first delays the next connection.
            async with asyncio.timeout(PATIENCE_S):
                while connections_to(target) < 4:
                    assert await translate(client, lambda: None) == expected
            killed = server.fronts()[0]
            assert await translate(client, lambda: os.kill(killed, signal.SIGKILL)) == expected
            assert await translate(client, lambda: None) == expected
        # gRPC closes a socket with the last object of a call on it.
        await eventually(lambda: gc.collect() >= 0 and not connections_to(target))
        server.stop()
