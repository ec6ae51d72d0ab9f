"""Host and port: how they are written as one, which only this machine reaches, which are taken."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from typing import Any


def address_of(host: str, port: int) -> str:
    """Writes host and port as one word; a bare IPv6 address gets its brackets."""
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Tells whether only this machine reaches a host; of a name but ``localhost`` it is unknown."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_taken(host: str, port: int) -> bool:
    """Tells whether others listen there already, at every address of the host."""
    bare = host.removeprefix("[").removesuffix("]")
    try:
        found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(_is_bound(family, address) for family, _, _, _, address in found)


def _is_bound(family: int, address: tuple[Any, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        # As servers do, or connections of the last one that ended would be in the way.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
