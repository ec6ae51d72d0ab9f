from __future__ import annotations

import pytest

from seqserve_server.address import address_of, is_loopback


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
