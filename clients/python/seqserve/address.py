"""Addresses of host and port: formatting, and checks for loopback and for ports in use."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from typing import Any


def address_of(host: str, port: int) -> str:
    """Formats ``host:port``; a bare IPv6 address gets brackets."""
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Tells whether only this machine reaches a host; any name but ``localhost`` counts as no."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_taken(host: str, port: int) -> bool:
    """Tells whether the port is in use at every address of the host."""
    bare = host.removeprefix("[").removesuffix("]")
    try:
        addresses = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(_is_bound(family, address) for family, _, _, _, address in addresses)


def _is_bound(family: int, address: tuple[Any, ...]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        # Servers set it too; without it, connections of the previous server would block the port.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
