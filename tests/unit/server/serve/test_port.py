import contextlib
import socket

import grpc
import pytest

from seqserve_server.contract.errors import StartupError
from seqserve_server.serve.server import bind

IPV4, IPV6 = "127.0.0.1", "::1"


def listens(address: str, port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, port)):
        return True
    return False


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server((IPV6, 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.skipif(not has_ipv6(), reason="the machine has no IPv6")
@pytest.mark.parametrize("is_chosen", [False, True], ids=["any port", "this port"])
@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("0.0.0.0", [IPV4]),
        ("127.0.0.1", [IPV4]),
        ("::1", [IPV6]),
        ("::", [IPV4, IPV6]),
        ("[::]", [IPV4, IPV6]),
    ],
)
async def test_only_addresses_that_were_asked_for_are_open(
    host: str, addresses: list[str], is_chosen: bool
) -> None:
    # A port of one address may be another program's at the other one.
    opened = [await opened_by(host, is_chosen=is_chosen) for _ in range(3)]
    assert addresses in opened
    assert all(set(addresses) <= set(each) for each in opened)


async def opened_by(host: str, *, is_chosen: bool) -> list[str]:
    with socket.create_server((IPV4, 0)) as free:
        port = free.getsockname()[1] if is_chosen else 0
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    bound = bind(server, host, port, None)
    assert bound == port or not is_chosen
    await server.start()
    try:
        return [address for address in (IPV4, IPV6) if listens(address, bound)]
    finally:
        await server.stop(None)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_a_port_that_is_taken_is_refused(host: str) -> None:
    with socket.create_server((host, 0)) as taken:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        with pytest.raises(StartupError, match="--port 0 takes any free port"):
            bind(server, host, taken.getsockname()[1], None)
        await server.stop(None)
