"""Connections: their limits, and the name of the peer at the other end.

Limits of clients count per peer. An IPv6 address counts as its network, because one machine has
many.

Sources: gRPC core, include/grpc/impl/channel_arg_names.h; gRPC proposals A8 (keepalive) and A9
(connection age), https://github.com/grpc/proposal.
"""

import hashlib
import resource
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_network
from typing import Any
from urllib.parse import unquote

from seqserve_server.contract.errors import StartupError
from seqserve_server.front.config import ServeOptions

# Larger headers cost time to read and serve no purpose.
_MAX_METADATA_BYTES = 16 << 10
# A client that pings more often is disconnected; ours pings once a minute, and only during calls.
_MIN_PING_INTERVAL_MS = 10_000
_MAX_EARLY_PINGS = 2
# Finds peers that vanished, and frees the slots and file handles that they hold.
_KEEPALIVE_MS = 60_000
_KEEPALIVE_TIMEOUT_MS = 20_000
# A peer that connects and stays silent holds a file handle; a slow line needs about a second.
_HANDSHAKE_TIMEOUT_MS = 20_000
# File handles that the server itself needs: engines, models, scrapes, logs.
_OWN_FILES = 128
_UNLIMITED = (1 << 31) - 1
# Calls of one method that gRPC holds until they are taken, which takes some turns of the event
# loop; it ends others itself. Each takes 15 KB, and up to 64 KiB of its message.
_MAX_PENDING = 8192

_NETWORK_BITS = 64
# Names are kept while their requests wait.
_MAX_CHARACTERS = 128


def refuse_few_files(options: ServeOptions) -> None:
    """Fails if the limit on open files leaves none for connections."""
    files = _open_files()
    if options.max_connections is None and files <= _OWN_FILES:
        raise StartupError(
            f"the limit on open files is {files}, of which the server needs {_OWN_FILES} and each"
            " connection one more; raise it: `ulimit -n 1024`, or LimitNOFILE= in systemd"
        )


def connection_arguments(options: ServeOptions) -> list[tuple[str, Any]]:
    """Returns gRPC's channel arguments; idle connections stay open, as clients log a closed one."""
    most = max(1, _open_files() - _OWN_FILES)
    return [
        ("grpc.so_reuseport", int(options.front_count() > 1)),
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", options.max_connections or most),
        ("grpc.max_concurrent_streams", options.max_calls_per_connection),
        ("grpc.server.max_pending_requests", _MAX_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING),
        # It resets streams of a connection whose calls the front can still refuse itself.
        ("grpc.http.overload_protection", 0),
        # gRPC varies it by a tenth, so that clients do not all reconnect at once.
        ("grpc.max_connection_age_ms", int(1e3 * options.max_connection_age_s)),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", _MAX_EARLY_PINGS),
        # Some clients must ping between calls to keep a path through a firewall open.
        ("grpc.keepalive_permit_without_calls", 1),
        # With the probe, a call may send some MiB ahead, the bandwidth-delay product of its line,
        # and the server buffers it all; without, 64 KiB, or one message that is larger.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        # For a ping that has to wait for data that the network does not take.
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ]


def _open_files() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if files == resource.RLIM_INFINITY else min(files, _UNLIMITED)


def peer_name(peer: str, metadata: Sequence[tuple[str, str | bytes]] | None, key: str) -> str:
    """Names the peer of a call by its metadata ``key``, if that is not empty, or by its address.

    gRPC writes ``peer`` as ``ipv4:127.0.0.1:4321``, ``ipv6:%5B::1%5D:4321`` or ``unix:``.
    """
    if key:
        for name, value in metadata or ():
            if name == key.lower() and isinstance(value, str):
                if len(value) <= _MAX_CHARACTERS:
                    return value
                # Of the whole name, so that names with one beginning differ.
                return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()
    return _host(peer)


@lru_cache(maxsize=1024)
def _host(peer: str) -> str:
    kind, _, address = unquote(peer).partition(":")
    if kind == "ipv4":
        return address.rpartition(":")[0]
    if kind == "ipv6":
        return _network(address)
    return peer[:_MAX_CHARACTERS]


def _network(address: str) -> str:
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        parsed = IPv6Address(host)
    except ValueError:
        return host[:_MAX_CHARACTERS]
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, _NETWORK_BITS), strict=False))
