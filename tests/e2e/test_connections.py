"""Many calls of one client at two servers that share a port, one of which is killed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.process import PATIENCE_S, ServerProcess, eventually
from tests.support.sockets import connections_to

from seqserve import AsyncClient

SOURCES = [f"line number {number}" for number in range(400)]
CONCURRENCY = 160
"""Enough for five connections."""


@pytest.fixture
def servers(repository: Path, tmp_path: Path) -> Iterator[list[ServerProcess]]:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        options = ("--reuse-port", "--port", str(holder.getsockname()[1]))
        servers = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            servers.append(ServerProcess(repository, tmp_path / name, *options))
        with servers[0], servers[1]:
            yield servers


async def translate(client: AsyncClient) -> list[str]:
    many = client.generate_many(SOURCES, concurrency=CONCURRENCY, max_decoding_length=20)
    return [result.text async for result in many]


def calls_of(server: ServerProcess) -> int:
    return server.calls_by_code()["OK"]


async def test_calls_reach_both_and_those_of_a_killed_one_the_other(
    servers: list[ServerProcess],
) -> None:
    one, other = servers
    target = one.target
    while True:
        async with AsyncClient(target, timeout_s=PATIENCE_S) as client:
            expected = await translate(client)
            before = calls_of(other)
            await translate(client)
            # The system may have given all connections to one server.
            if calls_of(one) and calls_of(other) > before:
                assert connections_to(target) >= 4
                job = asyncio.create_task(translate(client))
                await eventually(lambda: other.under_way() > 0)
                await asyncio.to_thread(other.kill)
                assert await job == expected
                before = calls_of(one)
                assert await translate(client) == expected
                assert calls_of(one) >= before + len(SOURCES)
                break
    await eventually(lambda: not connections_to(target))
