"""Names the peer of a call: by its address, or by what a proxy says of it.

Bounds are per peer. An IPv6 address counts as its network, because one machine has many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_network
from urllib.parse import unquote

_NETWORK_BITS = 64
# Names are kept while their requests wait.
_MAX_CHARACTERS = 128


def peer_name(peer: str, metadata: Sequence[tuple[str, str | bytes]] | None, key: str) -> str:
    """Names the peer of a call.

    Args:
        peer: As gRPC writes it: ``ipv4:127.0.0.1:4321``, ``ipv6:%5B::1%5D:4321``, ``unix:``.
        metadata: The metadata of the call.
        key: The metadata key that names the client; empty for none.
    """
    if key:
        for name, value in metadata or ():
            if name == key.lower() and isinstance(value, str):
                return _bounded(value)
    return _host(peer)


@lru_cache(maxsize=1024)
def _host(peer: str) -> str:
    """Returns the address of a peer, or its network."""
    kind, _, address = unquote(peer).partition(":")
    if kind == "ipv4":
        return address.rpartition(":")[0]
    if kind == "ipv6":
        return _network(address)
    return peer[:_MAX_CHARACTERS]


def _bounded(name: str) -> str:
    """Returns a name, or a digest of all of it: names that begin alike stay apart."""
    if len(name) <= _MAX_CHARACTERS:
        return name
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()


def _network(address: str) -> str:
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        parsed = IPv6Address(host)
    except ValueError:
        return host[:_MAX_CHARACTERS]
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, _NETWORK_BITS), strict=False))
