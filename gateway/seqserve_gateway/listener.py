"""Listens, bounds connections, and drains the application at a signal.

uvicorn waits without limit for a request that never arrives, or arrives a byte at a time. Here a
connection without a request is closed after a time, and connections beyond the limit are closed at
once, so that half-sent requests cannot keep others out. ``Bodies`` bounds the time for a body.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import resource
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from seqserve.errors import OptionError
from seqserve.tls import read_pair
from seqserve_gateway.endpoint import Gateway

_log = logging.getLogger(__name__)

_FILES = 128
"""Open files that are no connections of the listener."""
_TICKS_OF_LOOK = 10
"""Tenths of a second between two looks at the files of the certificate and at the connections."""
_MAX_HEADER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What connections may hold."""

    max_connections: int = 4096
    """Connections at a time."""
    header_timeout_s: float = 10.0
    """Time for the headers of a request, from the connection or from the first byte on."""
    keep_alive_s: float = 60.0
    """Time for which a connection may wait for its next request, or take nothing of an answer."""
    drain_timeout_s: float = 30.0
    """Time that calls have to finish after SIGTERM."""


def listener_at(host: str, port: int, option: str) -> socket.socket:
    """Opens a socket that listens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "another server listens there; port 0 takes any free one"
        raise OptionError(f"{option}: {host}:{port} cannot be had: {reason}") from None


def run(
    app: ASGIApp,
    listener: socket.socket,
    gateway: Gateway,
    limits: ListenerLimits,
    certificate: tuple[Path, Path] | None = None,
) -> None:
    """Serves until SIGTERM or Ctrl-C; a second signal ends the process without a drain.

    At the first signal the gateway's admission ends.
    """
    files = _files(limits.max_connections + _FILES)
    limits = replace(limits, max_connections=min(limits.max_connections, files - _FILES))
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_Protocol,), {"limits": limits}),
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=int(limits.keep_alive_s),
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=certificate[1] if certificate else None,
    )
    _Server(config, gateway, limits.drain_timeout_s, certificate).run(sockets=[listener])


def _files(count: int) -> int:
    # Raises the limit as far as this process may.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return count
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        drain_timeout_s: float,
        certificate: tuple[Path, Path] | None,
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._read = _versions(certificate)
        self._gateway, self._drain_timeout_s = gateway, drain_timeout_s
        gateway.metrics.connections.set_function(lambda: len(self.server_state.connections))
        self._drained_by_s = math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._gateway.admission.is_open:
            self._gateway.admission.is_open = False
            self._drained_by_s = time.monotonic() + self._drain_timeout_s
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        is_drained = (
            self._gateway.admission.in_progress == 0 or time.monotonic() >= self._drained_by_s
        )
        self.should_exit |= not self._gateway.admission.is_open and is_drained
        if counter % _TICKS_OF_LOOK == 0:
            self._reload()
            for connection in list(self.server_state.connections):
                if isinstance(connection, _Protocol):
                    connection.end_unless_read()
        return await super().on_tick(counter)

    def _reload(self) -> None:
        versions = _versions(self._certificate)
        if self._certificate is None or self.config.ssl is None or versions == self._read:
            return
        self._read = versions
        try:
            # The context in use must not get one file of a pair that does not match.
            read_pair(*self._certificate, ("--tls-certificate", "--tls-key"))
            self.config.ssl.load_cert_chain(*self._certificate)
        except (OptionError, OSError) as error:
            _log.error("certificate kept: %s", error)
        else:
            _log.warning("certificate read again")


def _versions(files: tuple[Path, Path] | None) -> list[object]:
    versions: list[object] = []
    for file in files or ():
        try:
            status = file.stat()
        except OSError:
            versions.append(None)
        else:
            versions.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return versions


class _Protocol(HttpToolsProtocol):
    """Closes its connection if headers are late or too long, or if nobody reads the answer."""

    limits: ClassVar[ListenerLimits]

    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    """Bytes read of incomplete headers."""
    _complete_bytes = 0
    """Bytes of the address and the complete headers of a request."""
    _unsent_bytes = 0
    """Bytes that waited for the client at the last look."""
    _unread_since_s = 0.0
    """Since when the client has read none of them."""
    _requests: Sequence[RequestResponseCycle] = ()
    """Requests without an answer; the first one is in progress."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            transport.abort()
        else:
            self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_timer()
            return
        # After an early answer the rest of a body may still come: it is dropped, within the time.
        if self.cycle is None or not self.cycle.more_body:
            self._header_bytes += len(data)
        if self._header_bytes > _MAX_HEADER_BYTES:
            self.transport.abort()
        elif self._timer is None:
            self._wait_for_headers()

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
        super().on_headers_complete()
        requests = [each for each in (*self._requests, self.cycle) if each is not None]
        self._requests = [each for each in requests if not each.response_complete]

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)
        # uvicorn tells only the newest request, while an earlier one is in progress.
        for request in self._requests:
            request.disconnected = True
            request.message_event.set()

    def end_unless_read(self) -> None:
        """Ends the connection if its client has read nothing of an answer for a time.

        Closing it would wait for the client without limit.
        """
        unsent_bytes, now_s = self.transport.get_write_buffer_size(), time.monotonic()
        if not unsent_bytes or unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unread_since_s = unsent_bytes, now_s
        elif now_s - self._unread_since_s >= self.limits.keep_alive_s:
            self.transport.abort()

    def _count(self, size: int) -> None:
        # All headers may arrive at once; too many are answered with 400.
        self._complete_bytes += size
        if self._complete_bytes > _MAX_HEADER_BYTES:
            raise ValueError("the headers are too long")

    def _wait_for_headers(self) -> None:
        self._timer = self.loop.call_later(self.limits.header_timeout_s, self.transport.abort)

    def _cancel_timer(self) -> None:
        self._header_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
