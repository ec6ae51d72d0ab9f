"""One connection of HTTP/1.1: how much is read at a time, and when it is closed.

uvicorn waits without limit for a request that never arrives, or arrives a byte at a time. Here a
connection without a request is closed after a time, so that half-sent requests cannot keep others
out. ``Bodies`` bounds the time for a body.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_MAX_HEADER_BYTES = 64 << 10
_READ_BYTES = 1024
"""Bytes that are parsed before a look at what they brought: some tens of requests at most."""
MAX_WAITING_BYTES = 16 << 20
_NETWORK_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Limits of connections."""

    max_connections: int = 4096
    """Connections at a time."""
    max_waiting_bytes: int = MAX_WAITING_BYTES
    """Bytes of all connections that wait for the answer to an earlier request."""
    header_timeout_s: float = 10.0
    """Time for the headers of a request, from the connection or from the first byte on."""
    keep_alive_s: float = 75.0
    """Time for which a connection may wait for its next request, or take nothing of an answer. A
    balancer that keeps connections for as long would send a request as this side closes."""
    drain_timeout_s: float = 30.0
    """Time that calls have to finish after SIGTERM."""


class Connections:
    """The open connections of one listener. If there are too many, the peer with the most loses its
    least recently used idle one."""

    def __init__(self, limits: ListenerLimits) -> None:
        self.limits = limits
        self.waiting_bytes = 0
        """Bytes that have arrived and wait for the answer to an earlier request."""
        self._by_peer: dict[str, dict[_Protocol, None]] = defaultdict(dict)
        self._count = 0

    def protocol(self) -> Any:
        """Returns the protocol of the listener, for uvicorn."""
        return type("Protocol", (_Protocol,), {"table": self})

    def end_unread(self) -> None:
        """Ends connections whose clients have read nothing of an answer for a time."""
        for connection in [each for own in self._by_peer.values() for each in own]:
            connection.end_unless_read()

    def add(self, connection: _Protocol) -> None:
        """Adds a connection as the newest of its peer; if there are too many, one is aborted."""
        self._by_peer[connection.peer][connection] = None
        self._count += 1
        if self._count > self.limits.max_connections:
            most = max(self._by_peer.values(), key=len)
            (next(filter(_Protocol.may_go, most), None) or connection).abort()

    def used(self, connection: _Protocol) -> None:
        """Notes that a connection has had an answer, and is again the newest of its peer."""
        own = self._by_peer.get(connection.peer, {})
        if connection in own:
            own[connection] = own.pop(connection)

    def remove(self, connection: _Protocol) -> None:
        """Forgets a connection; it may have been removed before."""
        own = self._by_peer.get(connection.peer, {})
        if connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._by_peer[connection.peer]


class _Protocol(HttpToolsProtocol):
    """Reads one request after the other, and closes its connection if a client is too slow.

    Connections with late or too long headers, or with unread answers, are closed.
    """

    table: ClassVar[Connections]

    peer = ""
    """Address of the other side; of IPv6 the network, because one machine has many addresses."""

    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    """Bytes read of incomplete headers."""
    _complete_bytes = 0
    """Bytes of the address and the complete headers of a request."""
    _unsent_bytes = 0
    """Bytes that waited for the client at the last look."""
    _unread_since_s = 0.0
    """Since when the client has read no answer."""
    _current: RequestResponseCycle | None = None
    """The request that is answered; uvicorn's ``cycle`` is the newest one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting = bytearray()
        if self.client is not None:
            address, self.peer = _address_and_network(self.client[0])
            self.client = (address, self.client[1])
        self._wait_for_headers()
        self.table.add(self)

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        self.table.waiting_bytes += len(data)
        self._read()

    def _read(self) -> None:
        # A piece at a time: what follows a request waits, unparsed, for its answer.
        while self._waiting and not self.pipeline and not self.transport.is_closing():
            piece = bytes(self._waiting[:_READ_BYTES])
            self._drop(len(piece))
            self._parse(piece)
        if self._waiting and self.table.waiting_bytes > self.table.limits.max_waiting_bytes:
            self.abort()
        elif self._waiting:
            self.flow.pause_reading()

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_timer()
            return
        # After an early answer the rest of a body may still come: it is dropped, within the time.
        if self.cycle is None or not self.cycle.more_body:
            self._header_bytes += len(data)
        if self._header_bytes > _MAX_HEADER_BYTES:
            self.abort()
        elif self._timer is None:
            self._wait_for_headers()

    def _stay(self, rest: bytes) -> None:
        """Reads a request again without its wish for another protocol, such as HTTP/2.

        The parser would take what follows the headers for the other protocol's.
        Source: RFC 9110, section 7.8: a server may ignore ``Upgrade``.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            self.send_400_response("This is no proxy.")
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, version.encode())]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"\r\n".join([*lines, b"", b""]) + rest)

    def on_message_begin(self) -> None:
        self._complete_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        if self.url.startswith(b"//"):
            # The address of a client ended with a slash; this is no name of a host.
            self.url = b"/" + self.url.lstrip(b"/")
        super().on_headers_complete()
        # Trailers come after the body; a proxy has not seen to them (RFC 9110, section 6.5.1).
        self.headers = []
        if not self.pipeline:
            self._current = self.cycle

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        following = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        self._current = following
        self.table.used(self)
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._drop(len(self._waiting))
        self.table.remove(self)
        super().connection_lost(exc)
        # uvicorn tells only the newest request, while an earlier one is in progress.
        if self._current is not None:
            self._current.disconnected = True
            self._current.message_event.set()

    def may_go(self) -> bool:
        # Whether it has no request whose body is complete.
        return self._current is None or self._current.more_body

    def abort(self) -> None:
        # Closing would wait for the client without limit.
        self.table.remove(self)
        self.transport.abort()

    def end_unless_read(self) -> None:
        unsent_bytes, now_s = self.transport.get_write_buffer_size(), time.monotonic()
        if not unsent_bytes or unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unread_since_s = unsent_bytes, now_s
        elif now_s - self._unread_since_s >= self.table.limits.keep_alive_s:
            self.abort()

    def _drop(self, size: int) -> None:
        del self._waiting[:size]
        self.table.waiting_bytes -= size

    def _count(self, size: int) -> None:
        # All headers may arrive at once; too many are answered with 400.
        self._complete_bytes += size
        if self._complete_bytes > _MAX_HEADER_BYTES:
            raise ValueError("the headers are too long")

    def _wait_for_headers(self) -> None:
        self._timer = self.loop.call_later(self.table.limits.header_timeout_s, self.abort)

    def _cancel_timer(self) -> None:
        self._header_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@lru_cache(maxsize=1024)
def _address_and_network(host: str) -> tuple[str, str]:
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return host, host
    if address.ipv4_mapped is not None:  # of a client that calls by IPv4 what listens at "::"
        return str(address.ipv4_mapped), str(address.ipv4_mapped)
    return host, str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
