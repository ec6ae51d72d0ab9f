from __future__ import annotations

import socket

import pytest

from seqserve.address import address_of, is_loopback, is_taken


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1:1"),
        ("::1", "[::1]:1"),
        ("[fd00::1]", "[fd00::1]:1"),
        ("server", "server:1"),
    ],
)
def test_one_word(host: str, address: str) -> None:
    assert address_of(host, 1) == address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_only_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "::", "[::]", "10.0.0.1", "", "*"),
        *("127.0.0.1.example.com", "localhost.example.com"),
        # What a resolver may read otherwise than we do counts as reachable.
        *("127.1", "0x7f.0.0.1", "::ffff:0.0.0.0"),
    ],
)
def test_others_too(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_is_taken_while_somebody_listens(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_taken(host, port)
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            pass
    # Connections that have just ended do not count.
    assert not is_taken(host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "no such host", "\ud800", "192.0.2.1"])
def test_any_port_is_never_taken(host: str) -> None:
    assert not is_taken(host, 0)
