"""Listens, and drains the application at a signal; :mod:`seqserve_gateway.protocol` has the bounds
of connections."""

import logging
import math
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from seqserve.errors import OptionError
from seqserve.tls import read_pair
from seqserve_gateway.endpoint import Gateway
from seqserve_gateway.processes import BACKLOG, DRAIN, Parent
from seqserve_gateway.protocol import Connections, ListenerLimits

_log = logging.getLogger(__name__)

_FILES = 128
"""Open files that are not connections of the listener."""
_ACCEPTED = 32
"""Connections that are accepted at once."""
_TICKS_OF_LOOK = 10
"""Tenths of a second between two looks at the files of the certificate and at the connections."""


def within_files(limits: ListenerLimits) -> ListenerLimits:
    """Returns limits that the open files of this process allow, and lets it open more."""
    files = _files(limits.max_connections + _FILES)
    if files <= _FILES:
        raise OptionError(
            f"the limit on open files is {files}, of which the gateway needs {_FILES} and each"
            " connection one more; raise it: `ulimit -n 1024`, or LimitNOFILE= in systemd"
        )
    return replace(limits, max_connections=int(min(limits.max_connections, files - _FILES)))


def _files(wanted: int) -> float:
    # Raises the limit as far as this process may.
    if sys.platform == "win32":
        return math.inf
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return math.inf
    # Some systems take no soft limit without end.
    most = max(soft, wanted) if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def run(
    app: ASGIApp,
    listener: socket.socket,
    gateway: Gateway,
    limits: ListenerLimits,
    certificate: tuple[Path, Path] | None = None,
    parent: Parent | None = None,
) -> None:
    """Serves until SIGTERM or Ctrl-C; a second signal ends the process without a drain.

    At the first signal the gateway's admission ends. A child leaves signals to its parent.
    """
    connections = Connections(limits)
    config = uvicorn.Config(
        app,
        http=connections.protocol(),
        backlog=_ACCEPTED,
        log_level="critical",
        access_log=False,
        server_header=False,
        # The application knows its proxies.
        proxy_headers=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=int(limits.keep_alive_s),
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=certificate[1] if certificate else None,
    )
    _Server(config, gateway, connections, certificate, parent).run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        gateway: Gateway,
        connections: Connections,
        certificate: tuple[Path, Path] | None,
        parent: Parent | None,
    ) -> None:
        super().__init__(config)
        self._certificate, self._parent = certificate, parent
        self._read = _versions(certificate)
        self._gateway, self._connections = gateway, connections
        gateway.metrics.connections.set_function(lambda: len(self.server_state.connections))
        self._drained_by_s = math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.admission.is_whole = self._parent is None
        await super().startup(sockets)
        for each in sockets or ():
            # asyncio accepts as many at once as may wait to be accepted, and others wait meanwhile.
            each.listen(BACKLOG)
        if self._parent is not None:
            self._parent.tell(self._obey)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._parent is not None:
            return
        if self._gateway.admission.is_open:
            self._obey(DRAIN)
        else:
            super().handle_exit(sig, frame)

    def _obey(self, word: bytes) -> None:
        if word == DRAIN:
            self._gateway.admission.close()
            self._drained_by_s = time.monotonic() + self._connections.limits.drain_timeout_s
        else:
            self._gateway.admission.is_whole = True

    async def on_tick(self, counter: int) -> bool:
        is_drained = (
            self._gateway.admission.in_progress == 0 or time.monotonic() >= self._drained_by_s
        )
        self.should_exit |= not self._gateway.admission.is_open and is_drained
        if counter % _TICKS_OF_LOOK == 0:
            self._reload()
            self._connections.end_unread()
            self._gateway.metrics.publish()
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
        with suppress(OSError):
            status = file.stat()
            versions.append((file, status.st_mtime_ns, status.st_size, status.st_ino))
    return versions
