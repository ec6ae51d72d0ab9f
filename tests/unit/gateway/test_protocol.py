import random
import re
import socket
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.process import until
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.test_listener import HEAD, Running, ends, generation, running
from uvicorn.protocols.http import httptools_impl

from seqserve_gateway.protocol import ListenerLimits

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
MANY = 6500
MOST = 64
"""Requests that are read ahead."""
OTHER = "127.0.0.2"
WISH = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


def answers(connection: socket.socket, count: int, sign: bytes = b"alive") -> int:
    """Reads until a sign has come so often, or nothing more does; returns how often."""
    text = b""
    while text.count(sign) < count and (more := connection.recv(1 << 16)):
        text += more
    return text.count(sign)


def test_requests_behind_one_in_progress_are_left_unread(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    class Counted(httptools_impl.RequestResponseCycle):
        def __init__(self, **facts: Any) -> None:
            read.append(facts["scope"]["path"])
            super().__init__(**facts)

    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", Counted)
    with running(server, ListenerLimits()) as gateway, gateway.connect() as connection:
        connection.sendall(generation("hang on") + HEALTH * MANY)
        until(lambda: bool(server.requests))
        assert gateway.request("GET", "/healthz")[0] == 200
        assert len(read) < MOST
        server.cancelled.set()
        assert answers(connection, MANY) == MANY


def test_bytes_that_wait_have_a_bound(server: FakeServer) -> None:
    limits = ListenerLimits(max_waiting_bytes=1 << 15)
    with running(server, limits) as gateway, gateway.connect() as connection:
        with pytest.raises(OSError):
            for _ in range(MANY):
                connection.sendall(generation("hang on") * 100)
        until(lambda: gateway.connections() == 0)
        until(lambda: gateway.gateway.admission.in_progress == 0)
        assert gateway.generate("a b")[0] == 200


@pytest.mark.parametrize("has_pause", [False, True])
def test_wish_for_http_2_is_ignored_and_the_body_read(server: FakeServer, has_pause: bool) -> None:
    head, body = generation("a b").replace(HEAD, HEAD + WISH).split(b"\r\n\r\n")
    with running(server, ListenerLimits()) as gateway, gateway.connect() as connection:
        connection.sendall(head + b"\r\n\r\n" + (b"" if has_pause else body))
        if has_pause:
            until(lambda: gateway.request("GET", "/healthz")[0] == 200)
            connection.sendall(body)
        assert answers(connection, 1, b"hypotheses") == 1
        connection.sendall(HEALTH)
        assert answers(connection, 1) == 1
    assert [request.source for request in server.requests] == ["a b"]


def chunked(source: str) -> bytes:
    head, body = generation(source).split(b"\r\n\r\n")
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
    parts = (body[begin : begin + 7] for begin in range(0, len(body), 7))
    return (
        head + b"\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
    )


@pytest.mark.parametrize("seed", range(5))
def test_requests_are_the_same_in_whatever_pieces_they_come(server: FakeServer, seed: int) -> None:
    drawn = random.Random(seed)
    sources = [f"{number} {'x' * drawn.choice([0, 9, 3000])}" for number in range(20)]
    forms = [drawn.choice([generation, chunked])(source) for source in sources]
    sent = b"".join(
        form.replace(HEAD, HEAD + WISH * drawn.randint(0, 1)) + HEALTH * drawn.randint(0, 1)
        for form in forms
    )
    with running(server, ListenerLimits()) as gateway, gateway.connect() as connection:
        while sent:
            size = drawn.choice([1, 10, 100, 1024, 5000, 100_000])
            connection.sendall(sent[:size])
            sent = sent[size:]
        assert answers(connection, len(sources), b"hypotheses") == len(sources)
    assert [request.source for request in server.requests] == sources


def test_trailers_are_no_headers(server: FakeServer) -> None:
    sent = chunked("a b")[:-2] + b"Host: b\r\nX-Request-Timeout-S: none\r\n\r\n"
    with running(server, ListenerLimits()) as gateway, gateway.connect() as connection:
        connection.sendall(sent + HEALTH)
        assert b" 200 " in connection.recv(4096)


@pytest.mark.parametrize(
    "request_",
    [
        b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nX\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(server: FakeServer, request_: bytes) -> None:
    with running(server, ListenerLimits()) as gateway, gateway.connect() as connection:
        connection.sendall(request_)
        assert b" 400 " in connection.recv(4096)


def used(gateway: Running, stack: ExitStack, source: str = "127.0.0.1") -> socket.socket:
    """Opens a connection that has had an answer."""
    connection = stack.enter_context(gateway.connect(source))
    connection.sendall(HEALTH)
    assert answers(connection, 1) == 1
    return connection


def test_peer_with_the_most_connections_makes_room(server: FakeServer) -> None:
    with running(server, ListenerLimits(max_connections=4)) as gateway, ExitStack() as stack:
        busy = stack.enter_context(gateway.connect())
        busy.sendall(generation("hang on"))
        until(lambda: bool(server.requests))
        first, second, third = (used(gateway, stack) for _ in range(3))
        first.sendall(HEALTH)
        assert answers(first, 1) == 1
        # Of those that are idle, the one that was used before the others goes.
        others = [used(gateway, stack, OTHER) for _ in range(2)]
        assert ends(second) and ends(third)
        # Then both have two, and the newcomer is one of the peer with three.
        used(gateway, stack, OTHER)
        assert ends(others[0])
        server.cancelled.set()
        assert answers(busy, 1, b"hypotheses") == 1


def test_peer_whose_connections_are_all_busy_gets_no_more(server: FakeServer) -> None:
    with running(server, ListenerLimits(max_connections=2)) as gateway, ExitStack() as stack:
        busy = [stack.enter_context(gateway.connect()) for _ in range(2)]
        for connection in busy:
            connection.sendall(generation("hang on"))
        until(lambda: len(server.requests) == 2)
        assert ends(stack.enter_context(gateway.connect()))
        server.cancelled.set()
        assert [answers(each, 1, b"hypotheses") for each in busy] == [1, 1]


def test_half_a_body_holds_no_place(server: FakeServer) -> None:
    body = b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with running(server, ListenerLimits(max_connections=3)) as gateway, ExitStack() as stack:
        halves = [stack.enter_context(gateway.connect()) for _ in range(3)]
        for connection in halves:
            connection.sendall(HEAD + body)
        used(gateway, stack, OTHER)
        assert ends(halves[0])
