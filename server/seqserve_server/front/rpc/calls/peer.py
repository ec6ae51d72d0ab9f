"""Names the network side of a call, among which the queue is shared if calls show no token.

The name is the client's address without its port, because each connection has another port. Of an
IPv6 address the first 64 bits count, because a client may choose the rest (RFC 4291, section
2.5.1). A proxy hides its clients behind one address; if it names them in metadata, and lets nobody
else set that key, the operator configures the key. The name is not proof of who calls.
Source of the address form: "gRPC Name Resolution",
https://github.com/grpc/grpc/blob/master/doc/naming.md.
"""

from __future__ import annotations

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
                return value[:_MAX_CHARACTERS]
    kind, _, address = unquote(peer).partition(":")
    if kind == "ipv4":
        return address.rpartition(":")[0]
    if kind == "ipv6":
        return _network(address)
    return peer[:_MAX_CHARACTERS]


@lru_cache(maxsize=1024)
def _network(address: str) -> str:
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = IPv6Address(host)
    except ValueError:
        return host[:_MAX_CHARACTERS]
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ip_network((found, _NETWORK_BITS), strict=False))
