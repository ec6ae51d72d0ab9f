"""Who calls, as far as the queue is shared out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seqserve_server.front.rpc.calls.caller import caller_of
from seqserve_server.front.telemetry.call_record import CallRecord


@pytest.mark.parametrize(
    ("peer", "caller"),
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
def test_address_without_its_port(peer: str, caller: str) -> None:
    assert caller_of(peer, (), "") == caller


def test_metadata_names_the_caller_only_where_the_operator_says_so() -> None:
    metadata = (("x-other", "b"), ("x-caller", "a" * 500), ("x-caller-bin", b"c"))
    assert caller_of("ipv4:1.2.3.4:5", metadata, "") == "1.2.3.4"
    assert caller_of("ipv4:1.2.3.4:5", metadata, "X-Caller") == "a" * 128
    assert caller_of("ipv4:1.2.3.4:5", metadata, "x-caller-bin") == "1.2.3.4"
    assert caller_of("ipv4:1.2.3.4:5", None, "x-caller") == "1.2.3.4"


def test_token_goes_before_the_address() -> None:
    nameless = CallRecord(path="/s/m", request_id="1", origin="10.0.0.7", caller="")
    assert nameless.holder == "10.0.0.7"
    assert replace(nameless, caller="web").holder == "web"
