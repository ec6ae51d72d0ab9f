"""What one connection may ask of the server, and how many there may be.

Sources: gRPC core, include/grpc/impl/channel_arg_names.h; gRPC proposals A8 (keepalive) and A9
(connection age), https://github.com/grpc/proposal.
"""

from __future__ import annotations

import sys
from typing import Any

from seqserve_server.front.config import ServeOptions

# Beyond it a header costs more to read than it can be worth.
_MAX_METADATA_BYTES = 16 << 10
# A client that pings more often is cut off; ours pings once a minute, and only during calls.
_LEAST_PING_INTERVAL_MS = 10_000
_MOST_PINGS_TOO_SOON = 2
# Finds peers that are gone without a word, and with them the slots and handles that they hold.
_KEEPALIVE_MS = 60_000
_KEEPALIVE_TIMEOUT_MS = 20_000
# A peer that connects and says nothing holds a handle; a slow one on a bad line needs a second.
_HANDSHAKE_TIMEOUT_MS = 20_000
# Files that the server needs for itself: engines, models, scrapes, logs.
_OWN_FILES = 128
_MOST = (1 << 31) - 1


def connection_arguments(options: ServeOptions) -> list[tuple[str, Any]]:
    """Gives the arguments of the gRPC server.

    A connection without calls is left alone: gRPC's clients write a line to standard error when an
    idle one is closed, and it costs tens of KiB.
    """
    return [
        ("grpc.so_reuseport", int(options.reuse_port)),
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", options.max_connections or _most_connections()),
        ("grpc.max_concurrent_streams", options.max_calls_per_connection),
        # Spread by a tenth, so that clients do not come back together.
        ("grpc.max_connection_age_ms", int(1e3 * options.max_connection_age_s)),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", _MOST_PINGS_TOO_SOON),
        # Clients may ping between calls too, as some must to keep a way through a firewall open.
        ("grpc.keepalive_permit_without_calls", 1),
        # Else a call may send ahead what its connection carries in a round trip, some MiB, and all
        # of it is kept here until its turn comes; so it is 64 KiB, or a message that is larger.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        # That of a ping which waits behind data that the network does not take.
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ]


def _most_connections() -> int:
    """Gives how many fit beside the server's own files."""
    if sys.platform == "win32":
        return _MOST
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(1, min(files, _MOST) - _OWN_FILES)
