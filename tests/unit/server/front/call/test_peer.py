"""The peer's name, by which the queue is shared among calls without a token."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seqserve_server.front.call.peer import peer_name
from seqserve_server.front.telemetry.call_record import CallRecord


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
    names = {
        peer_name("ipv4:1.2.3.4:5", (("x-caller", "a" * length),), "x-caller")
        for length in (128, 129, 500)
    }
    assert len(names) == 3 and max(map(len, names)) <= 128


def test_client_id_is_the_name_of_the_token_and_else_the_peer() -> None:
    nameless = CallRecord(path="/s/m", request_id="1", peer="10.0.0.7")
    assert nameless.client_id == "10.0.0.7"
    assert replace(nameless, auth_name="web").client_id == "web"
