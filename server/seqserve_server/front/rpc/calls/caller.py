"""Who calls: a name by which the queue is shared out, not one that is to be trusted.

It is the address that a call comes from, without its port, for each connection has another one. Of
an IPv6 address the first 64 bits count, because the rest is the caller's own to choose (RFC 4291,
section 2.5.1). A proxy hides its callers behind one address; where it names them in metadata, and
lets nobody else do so, the operator says in which.
Source of the form: "gRPC Name Resolution", https://github.com/grpc/grpc/blob/master/doc/naming.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_network
from urllib.parse import unquote

_NETWORK_BITS = 64
# Names are kept while their requests wait.
_MOST_CHARACTERS = 128


def caller_of(peer: str, metadata: Sequence[tuple[str, str | bytes]] | None, key: str) -> str:
    """Names the caller.

    Args:
        peer: Where a call comes from: ``ipv4:127.0.0.1:4321``, ``ipv6:%5B::1%5D:4321``, ``unix:``.
        metadata: What came with the call.
        key: That of the metadata which names the caller; empty for none.
    """
    if key:
        for name, value in metadata or ():
            if name == key.lower() and isinstance(value, str):
                return value[:_MOST_CHARACTERS]
    kind, _, address = unquote(peer).partition(":")
    if kind == "ipv4":
        return address.rpartition(":")[0]
    if kind == "ipv6":
        return _network(address)
    return peer[:_MOST_CHARACTERS]


@lru_cache(maxsize=1024)
def _network(address: str) -> str:
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = IPv6Address(host)
    except ValueError:
        return host[:_MOST_CHARACTERS]
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ip_network((found, _NETWORK_BITS), strict=False))
