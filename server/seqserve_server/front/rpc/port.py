"""Binds the gRPC port, at no other addresses than those asked for."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

import grpc

from seqserve_server.contract.errors import StartupError
from seqserve_server.front.address import address_of
from seqserve_server.front.security.tls import Certificates

_ALL_IPV4, _ALL_IPV6 = "0.0.0.0", "::"


def bind(server: grpc.aio.Server, host: str, port: int, certificates: Certificates | None) -> int:
    """Binds a server to a port, 0 for any free one, and returns the port.

    Raises:
        StartupError: The port is taken, or the address is not one of this machine.
    """
    with ExitStack() as meanwhile:
        if host == _ALL_IPV4:
            port = port or _free_port()
            # gRPC listens at all IPv6 addresses too, unless the port is taken there.
            with suppress(OSError):
                taken = socket.create_server((_ALL_IPV6, port), family=socket.AF_INET6)
                meanwhile.enter_context(taken)
        return _bind(server, address_of(host, port), certificates)


def _bind(server: grpc.aio.Server, address: str, certificates: Certificates | None) -> int:
    try:
        if certificates is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, certificates.credentials())
    except RuntimeError:
        bound = 0
    if not bound:
        # gRPC does not say which, and checks the files more strictly than we do.
        others = ", or gRPC refuses the files of --tls-certificate" if certificates else ""
        raise StartupError(
            f"--port: cannot listen on {address}: another server does, or --host is no address"
            f" of this machine{others}; --port 0 takes any free port"
        )
    return bound


def _free_port() -> int:
    with socket.create_server((_ALL_IPV4, 0)) as server:
        return int(server.getsockname()[1])
