import socket
from typing import Any

import pytest

from seqserve.address import (
    address_of,
    channel_options,
    check_name,
    grpc_target,
    is_local,
    is_loopback,
    is_taken,
)
from seqserve.errors import OptionError


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


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "[::]", "10.0.0.1", "", "*")),
        *((host, False) for host in ("127.0.0.1.example.com", "localhost.example.com")),
        # What a resolver may read otherwise than we do counts as reachable.
        *((host, False) for host in ("127.1", "0x7f.0.0.1", "::ffff:0.0.0.0")),
    ],
)
def test_which_hosts_only_this_machine_reaches(host: str, is_here: bool) -> None:
    assert is_loopback(host) == is_here


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


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("localhost:50051", "localhost:50051"),
        ("[::1]:50051", "[::1]:50051"),
        ("unix:/run/seqserve.sock", "unix:/run/seqserve.sock"),
        ("dns:///seqserve.default.svc:50051", "dns:///seqserve.default.svc:50051"),
        ("127.0.0.1:1,127.0.0.2:2", "ipv4:127.0.0.1:1,127.0.0.2:2"),
        ("127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:1", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        ("localhost:1,localhost:2", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        # Only ports of TCP are checked.
        *((target, target) for target in ("localhost:65535", "dns:///localhost", "ipv6:[::1]:1")),
        *((target, target) for target in ("unix:/run/x:65536", "vsock:2:70000")),
    ],
)
def test_targets(target: str, expected: str) -> None:
    assert grpc_target(target) == expected


MALFORMED = ["", "localhost", "localhost:", ":50051", "a b:1", "http://x:1", "localhost:1,", "::1"]
OUT_OF_RANGE = [
    *("localhost:65536", "127.0.0.1:116937", "localhost:0", "localhost:" + "9" * 5000),
    *("127.0.0.1:1, 127.0.0.1:65536 , 127.0.0.1:2", "dns:///localhost:65536"),
    *("ipv4:127.0.0.1:65536,127.0.0.1:1", "ipv6:[::1]:65536"),
]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        *((target, "is not host:port; write for instance") for target in MALFORMED),
        *((target, "is not text; write for instance") for target in (None, 50051, b"localhost:1")),
        *((target, "the port of .* is not from 1 to 65535") for target in OUT_OF_RANGE),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_malformed_target_is_refused(target: Any, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^target: .*{reason}|^target: {reason}"):
        grpc_target(target)


@pytest.mark.parametrize("target", ["\udcff:1", "a:1,b\0:1", "unix:/run/\udcff", "dns:///a\n:1"])
def test_characters_that_no_address_has(target: str) -> None:
    with pytest.raises(OptionError, match=r"^target: '.*\\.*' has a character that no address has"):
        grpc_target(target)
    with pytest.raises(OptionError, match=r"^tls.server_name: 'x\\udcff' has a character"):
        check_name("a:1", "x\udcff")


def test_an_unknown_host_among_several_is_named() -> None:
    with pytest.raises(OptionError, match=r"'nowhere\.invalid:1'"):
        grpc_target("127.0.0.1:1,nowhere.invalid:1")


@pytest.mark.parametrize(
    ("target", "avoids_proxy"),
    [
        ("localhost:1", True),
        ("127.0.0.9:1,localhost:2", True),
        ("[::1]:1", True),
        ("localhost.example.com:1", False),
        ("127.0.0.1:1,10.0.0.1:1", False),
        ("dns:///x:1", False),
        ("unix:/run/seqserve.sock", True),
    ],
)
def test_only_calls_to_this_machine_avoid_the_proxy(target: str, avoids_proxy: bool) -> None:
    assert (("grpc.enable_http_proxy", 0) in channel_options(target, 1)) is avoids_proxy


@pytest.mark.parametrize(
    ("target", "stays"),
    [
        ("localhost:1", True),
        ("127.0.0.1:1, [::1]:2", True),
        ("unix:/run/seqserve.sock", True),
        ("unix-abstract:seqserve", True),
        ("127.0.0.1.example.com:1", False),
        ("localhost:1,example.com:1", False),
        ("0.0.0.0:1", False),
        ("dns:///localhost:1", False),
        ("ipv4:127.0.0.1:1", False),
    ],
)
def test_which_calls_stay_on_this_machine(target: str, stays: bool) -> None:
    assert is_local(target) is stays


@pytest.mark.parametrize("target", ["a:1,b:1", "unix:/run/seqserve.sock"])
def test_targets_without_a_host_name_need_a_server_name(target: str) -> None:
    with pytest.raises(OptionError, match="--tls-server-name"):
        check_name(target, None)
    check_name(target, "seqserve.example.com")
    check_name("a:1", None)


def test_a_name_of_the_certificate_goes_to_grpc() -> None:
    override = "grpc.ssl_target_name_override"
    assert (override, "x.example.com") in channel_options("localhost:1", 1, "x.example.com")
    assert override not in dict(channel_options("localhost:1", 1))
