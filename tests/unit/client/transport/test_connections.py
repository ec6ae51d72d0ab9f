"""Connections to real servers: how many there are, which call takes which, and their end."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from tests.certificates import Certificates
from tests.support.process import eventually, until
from tests.support.sockets import connections_to

from seqserve import TLS, AsyncClient, Client
from seqserve._transport import balance
from seqserve._transport.channels import AsyncGrpcTransport, GrpcTransport
from seqserve._transport.connection import Connection, Method
from seqserve.v1 import generation_pb2

from ..fake_server import FakeServer
from ..sessions import SOON, Connect

Pair = tuple[Client, FakeServer, FakeServer]
BATCH = generation_pb2.GenerateBatchRequest(sources=["a"])


def hold(transport: Any, calls: int = 2) -> list[Any]:
    """Makes calls that count as long as nobody reads them; two let another connection open."""
    return [transport.call(Method.GENERATE_BATCH, BATCH, None) for _ in range(calls)]


@contextmanager
def transport_to(target: str, **settings: Any) -> Iterator[GrpcTransport]:
    transport = GrpcTransport(Connection(target, 1 << 20, **settings))
    yield transport
    transport.close()


def is_settled(transport: Any) -> bool:
    """Whether the last connection takes calls: its server has answered."""
    opening = transport._opening
    return opening is None or opening.check.done()


def grow(transport: GrpcTransport, target: str, number: int) -> list[Any]:
    held = []
    for opened in range(1, number):
        held += hold(transport)
        until(lambda opened=opened: connections_to(target) > opened)  # type: ignore[misc]
        until(lambda: is_settled(transport))
    return held


@pytest.fixture
def pair(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A client with a connection to each of two servers that share a port; the second is idle."""
    # A busy machine may take more than a second for a retry.
    monkeypatch.setattr(balance, "_AVOIDED_S", 1000.0)
    other = FakeServer(target=server.target)
    try:
        while True:
            with transport_to(server.target, connections=2) as transport:
                held = grow(transport, server.target, 2)
                until(lambda: len(server.peers + other.peers) == 2)
                # gRPC cancels what nobody holds, before it is sent too.
                held.clear()
                busy, idle = (server, other) if server.peers else (other, server)
                client = Client(transport=transport, retry=SOON)
                client.tokenize("which")
                if idle.peers:
                    for each in (busy, idle):
                        each.requests.clear()
                    idle.cancelled.clear()
                    yield client, busy, idle
                    return
            # The system has chosen the same server twice.
            until(lambda: not connections_to(server.target))
            for each in (server, other):
                each.peers.clear()
    finally:
        other.stop()


def test_a_light_caller_has_one_connection(server: FakeServer, connect: Connect) -> None:
    client = connect(server.target)
    client.generate_many([str(number) for number in range(40)], concurrency=8)
    client.stream("a b c")
    client.generate_bulk(["a", "b"])
    assert len(set(server.peers)) == connections_to(server.target) == 1


def test_connections_grow_up_to_their_number_and_are_balanced(server: FakeServer) -> None:
    with transport_to(server.target, connections=3) as transport:
        calls = grow(transport, server.target, 3) + hold(transport, 20)
        until(lambda: len(server.peers) == len(calls))
        assert len(set(server.peers)) == connections_to(server.target) == 3
        assert set(Counter(server.peers).values()) == {8}


def test_every_connection_is_encrypted_and_shows_the_token(certificates: Certificates) -> None:
    certificate, key = (file.read_bytes() for file in certificates.server)
    server = FakeServer(grpc.ssl_server_credentials([(key, certificate)]))
    try:
        settings = {"tls": TLS(ca=certificates.ca), "token": "abc", "connections": 2}
        with transport_to(server.target, **settings) as transport:
            calls = grow(transport, server.target, 2) + hold(transport)
            until(lambda: len(server.peers) == len(calls))
            assert len(set(server.peers)) == 2
            assert set(server.authorizations) == {"Bearer abc"}
    finally:
        server.stop()


def test_a_call_goes_from_a_drain_to_another(pair: Pair) -> None:
    client, busy, idle = pair
    idle.is_draining = True
    assert [client.generate(text).text for text in ("a", "b", "c")] == ["A", "B", "C"]
    assert [request.source for request in idle.requests] == ["a"]
    assert [request.source for request in busy.requests] == ["a", "b", "c"]


def test_a_call_of_a_dead_server_goes_to_another(pair: Pair) -> None:
    client, busy, idle = pair
    # There it does not hang.
    busy.cancelled.set()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(client.generate, "hang up")
        until(lambda: bool(idle.requests))
        idle.stop()
        assert answer.result().text == "HANG UP"
    assert [request.source for request in busy.requests] == ["hang up"]


def test_a_light_caller_whose_server_dies_reaches_another(
    server: FakeServer, connect: Connect
) -> None:
    other = FakeServer(target=server.target)
    try:
        client = connect(server.target, retry=SOON)
        client.generate("a")
        first, second = (server, other) if server.requests else (other, server)
        first.stop()
        assert client.generate("b").text == "B"
        assert [request.source for request in second.requests] == ["b"]
    finally:
        other.stop()


def test_closing_a_client_leaves_no_socket(server: FakeServer) -> None:
    with transport_to(server.target) as transport:
        grow(transport, server.target, 4)
        # One more may be opening.
        hold(transport)
    until(lambda: not connections_to(server.target))


async def test_calls_of_asyncio_share(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "_AVOIDED_S", 1000.0)
    transport = AsyncGrpcTransport(Connection(server.target, 1 << 20, connections=2))
    async with AsyncClient(transport=transport, retry=SOON) as client:
        for _ in range(2):
            await asyncio.gather(*(client.generate("a") for _ in range(40)))
            await eventually(lambda: is_settled(transport))
        first, second = Counter(server.peers)
        assert Counter(server.peers) == {first: 60, second: 20}
        assert connections_to(server.target) == 2
        hold(transport, 1)
        await eventually(lambda: len(server.peers) == 81)
        await client.generate("busy 1 times")
        # The second connection was refused, so the retry took the first one.
        assert server.peers[-2:] == [second, first]


async def test_closing_an_asyncio_client_leaves_no_socket(server: FakeServer) -> None:
    async with AsyncClient(server.target) as client:
        await asyncio.gather(*(client.generate("a") for _ in range(64)))
        # The second one takes no call before the end.
        await eventually(lambda: connections_to(server.target) == 2)
    await eventually(lambda: not connections_to(server.target))
