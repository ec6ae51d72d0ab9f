"""How host and port are written as one, and which hosts only this machine reaches."""

from __future__ import annotations

from ipaddress import ip_address


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
