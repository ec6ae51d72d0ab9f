import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tests.unit.server.front.calls import awaited, failure
from tests.unit.server.front.echo import PATIENCE_S

from seqserve.address import channel_options
from seqserve_server.contract.errors import StartupError
from seqserve_server.front.call import connections
from seqserve_server.front.call.connections import connection_arguments, peer_name, refuse_few_files
from seqserve_server.front.config import ServeOptions

REQUEST = health_pb2.HealthCheckRequest()


@asynccontextmanager
async def listening(options: ServeOptions) -> AsyncIterator[str]:
    """Runs a health server whose Watch calls never end; gives its address."""
    server = grpc.aio.server(options=connection_arguments(options))
    servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    handlers = {"Peer": grpc.unary_unary_rpc_method_handler(_peer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x.Test", handlers),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    try:
        await server.start()
        yield address
    finally:
        # A gRPC server that was not stopped hangs when it is freed.
        await server.stop(None)


async def _peer(request: bytes, context: Any) -> bytes:
    return str(context.peer()).encode()


def connected(address: str) -> tuple[grpc.aio.Channel, Any]:
    # Not shared with other channels.
    alone = ("grpc.use_local_subchannel_pool", 1)
    soon = ("grpc.initial_reconnect_backoff_ms", 100)
    channel = grpc.aio.insecure_channel(address, [alone, soon])
    return channel, health_pb2_grpc.HealthStub(channel)


async def test_connections_beyond_the_limit_are_refused() -> None:
    async with listening(ServeOptions(max_connections=2)) as address:
        held = [connected(address) for _ in range(2)]
        for _, stub in held:
            await stub.Check(REQUEST, timeout=PATIENCE_S)
        channel, stub = connected(address)
        error = await failure(stub.Check(REQUEST, timeout=PATIENCE_S))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        await held[0][0].close()
        await stub.Check(REQUEST, timeout=PATIENCE_S, wait_for_ready=True)
        for each in (channel, held[1][0]):
            await each.close()


async def test_calls_beyond_the_limit_of_a_connection_wait() -> None:
    async with listening(ServeOptions(max_calls_per_connection=2)) as address:
        channel, stub = connected(address)
        running = [stub.Watch(REQUEST) for _ in range(2)]
        for call in running:
            await call.read()
        waiting = asyncio.ensure_future(awaited(stub.Check(REQUEST, timeout=PATIENCE_S)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        running[0].cancel()
        assert (await waiting).status == health_pb2.HealthCheckResponse.SERVING
        await channel.close()


async def test_calls_survive_the_maximum_age_of_their_connection() -> None:
    async with listening(ServeOptions(max_connection_age_s=0.1)) as address:
        channel, stub = connected(address)
        running = stub.Watch(REQUEST)
        await running.read()
        ask: Any = channel.unary_unary("/x.Test/Peer")
        peers = set()
        async with asyncio.timeout(PATIENCE_S):
            while len(peers) < 3:
                peers.add(await ask(b""))
        assert not running.done()
        running.cancel()
        await channel.close()


async def test_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HANDSHAKE_TIMEOUT_MS", 200)
    async with listening(ServeOptions()) as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as mute:
            mute.settimeout(PATIENCE_S)
            assert await asyncio.to_thread(_all_of, mute)


def test_limit_of_open_files_limits_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(files: int) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
        arguments = dict(connection_arguments(ServeOptions()))
        return int(arguments["grpc.max_allowed_incoming_connections"])

    assert limit(1024) == 1024 - 128
    unlimited = (1 << 31) - 1
    assert limit(resource.RLIM_INFINITY) == unlimited - 128
    assert limit(1 << 40) <= unlimited


def test_limit_of_open_files_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 1024))
    with pytest.raises(StartupError, match=r"the limit on open files is 64, .*`ulimit -n"):
        refuse_few_files(ServeOptions())
    refuse_few_files(ServeOptions(max_connections=8))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    refuse_few_files(ServeOptions())


def test_python_client_pings_less_often_than_the_limit() -> None:
    client, server = dict(channel_options("x:1", 1)), dict(connection_arguments(ServeOptions()))
    min_interval_ms = server["grpc.http2.min_ping_interval_without_data_ms"]
    assert client["grpc.keepalive_time_ms"] >= 2 * min_interval_ms


def test_one_connection_can_overfill_the_queue_and_be_told_so() -> None:
    """So that calls beyond the queue are refused, instead of waiting unseen in the connection."""
    for workers in (1, 2, 31):
        options = ServeOptions(workers=workers)
        assert options.max_calls_per_connection > options.slot_count() + options.max_queue


def _all_of(connection: socket.socket) -> bool:
    """Reads until the other side closes the connection."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("ipv4:127.0.0.1:4321", "127.0.0.1"),
        ("ipv6:%5B::1%5D:4321", "::/64"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:4321", "2001:db8:1:2::/64"),
        ("ipv6:[::ffff:10.0.0.7]:4321", "10.0.0.7"),
        ("ipv6:[fe80::1%25eth0]:4321", "fe80::/64"),
        ("ipv6:[nonsense]:4321", "nonsense"),
        ("unix:", "unix:"),
        ("", ""),
    ],
)
def test_peer_is_named_by_its_address_without_the_port(peer: str, name: str) -> None:
    assert peer_name(peer, (), "") == name


def test_metadata_names_the_peer_only_under_the_configured_key() -> None:
    metadata = (("x-other", "b"), ("x-caller", "a" * 128), ("x-caller-bin", b"c"))
    assert peer_name("ipv4:1.2.3.4:5", metadata, "") == "1.2.3.4"
    assert peer_name("ipv4:1.2.3.4:5", metadata, "X-Caller") == "a" * 128
    assert peer_name("ipv4:1.2.3.4:5", metadata, "x-caller-bin") == "1.2.3.4"
    assert peer_name("ipv4:1.2.3.4:5", None, "x-caller") == "1.2.3.4"


def test_long_names_that_begin_alike_are_different_callers_and_are_kept_short() -> None:
    long = [(("x-caller", "a" * length),) for length in (128, 129, 500)]
    names = {peer_name("ipv4:1.2.3.4:5", metadata, "x-caller") for metadata in long}
    assert len(names) == 3 and max(map(len, names)) <= 128
