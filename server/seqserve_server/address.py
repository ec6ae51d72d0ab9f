"""How host and port are written as one."""

from __future__ import annotations


def address_of(host: str, port: int) -> str:
    """Writes host and port as one word; a bare IPv6 address gets its brackets."""
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"
