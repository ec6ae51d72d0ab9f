"""Thousands of connections: the server keeps answering and frees them all."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.resources import Resources, until_released
from tests.support.frames import HELLO, connected
from tests.support.process import ONCE, PATIENCE_S, ServerProcess, eventually, until

from seqserve import Client
from seqserve.errors import Unavailable
from seqserve.v1 import generation_pb2, generation_pb2_grpc

from .unaffected_client import CallAccounts, UnaffectedClient

ROUNDS = 2
"""Repetitions; the first one fills pools and arenas."""
CONNECTIONS, BUSY = 5000, 50
"""Idle connections, and active ones beside them."""
MOST_KIB = 30.0
"""Memory of an idle connection; docs/security.md says 17 KiB."""
ALLOWED = 64

ALONE = [("grpc.use_local_subchannel_pool", 1)]
_FRAME_HEAD = 9

pytestmark = pytest.mark.chaos


@contextmanager
def many_files() -> Iterator[None]:
    """Raises the limit on open files of this process and of servers that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > CONNECTIONS + 1000, "`ulimit -Hn` is too low for this test"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def silent(target: str) -> Iterator[socket.socket]:
    """Opens an HTTP/2 connection that sends no request."""
    with connected(target) as connection:
        connection.sendall(HELLO)
        yield connection


def is_welcome(connection: socket.socket) -> bool:
    """Waits for the server's settings; False if it closes the connection instead."""
    try:
        head = connection.recv(_FRAME_HEAD, socket.MSG_WAITALL)
    except ConnectionResetError:
        return False
    return len(head) == _FRAME_HEAD


async def test_thousands_of_connections(repository: Path, tmp_path: Path) -> None:
    with many_files(), ServerProcess(repository, tmp_path, "--slots", "16") as server:
        accounts = CallAccounts(server)
        async with UnaffectedClient(server.target) as unaffected:
            usual_s = await unaffected.usual_s(20)
            fresh = await asyncio.to_thread(Resources.of, server)
            for number in range(ROUNDS):
                if number == 1:
                    await eventually(lambda: files(server) <= fresh.files)
                    before = await asyncio.to_thread(Resources.of, server)
                with ExitStack() as stack:
                    for _ in range(CONNECTIONS):
                        each = stack.enter_context(silent(server.target))
                        assert await asyncio.to_thread(is_welcome, each)
                    held = await asyncio.to_thread(Resources.of, server)
                    await asyncio.gather(*(called_alone(server) for _ in range(BUSY)))
                    if number == 0:
                        first = held
                    beside_s = await unaffected.usual_s(20)
        after = until_released(server, before)
        accounts.until(OK=unaffected.answered + ROUNDS * BUSY)
        assert "Traceback" not in server.stderr
    kib = (first.megabytes - fresh.megabytes) * 1024 / CONNECTIONS
    print(f"\n{kib:.1f} KiB for each of {CONNECTIONS} connections; {before}; {held}; then {after}")
    print(f"a call beside them took {beside_s * 1e3:.0f} ms, without {usual_s * 1e3:.0f} ms")
    assert first.files - fresh.files == CONNECTIONS
    assert kib < MOST_KIB
    assert beside_s < 2.0 * usual_s + 0.05


def files(server: ServerProcess) -> int:
    return Resources.of(server).files


async def called_alone(server: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(server.target, ALONE) as channel:
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        options = generation_pb2.GenerationOptions(max_decoding_length=40)
        request = generation_pb2.GenerateRequest(source="Nobody", options=options)
        assert (await stub.Generate(request, timeout=PATIENCE_S)).hypotheses


def test_connections_over_the_limit_do_not_disturb_others(repository: Path, tmp_path: Path) -> None:
    options = ("--slots", "16", "--max-connections", str(ALLOWED))
    with (
        ServerProcess(repository, tmp_path, *options) as server,
        Client(server.target, retry=ONCE) as client,
        grpc.insecure_channel(server.target, ALONE) as channel,
        ExitStack() as stack,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        accounts = CallAccounts(server)
        assert client.models()
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S).status
        held = [stack.enter_context(silent(server.target)) for _ in range(ALLOWED - 2)]
        assert all(map(is_welcome, held))
        full = Resources.of(server)
        for _ in range(4 * ALLOWED):
            with silent(server.target) as refused:
                assert not is_welcome(refused)
        elsewhere = server.target.replace("127.0.0.1", "localhost")
        with Client(elsewhere, retry=ONCE) as late, pytest.raises(Unavailable):
            late.models()
        # Existing connections are served as before, and so are scrapes.
        assert client.generate("Nobody", max_decoding_length=3).version == 1
        assert client.load_model("endless", 1).version == 1
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S).status
        assert server.get("/readyz")[0] == 200
        until(lambda: files(server) <= full.files)
        # A connection that closes makes room.
        held[0].close()
        until(lambda: is_let_in(server))
        accounts.until(OK=3)


def is_let_in(server: ServerProcess) -> bool:
    with silent(server.target) as connection:
        return is_welcome(connection)
