"""The HTTP port for machines that watch: ``/metrics``, ``/healthz`` and ``/readyz``."""

from __future__ import annotations

import logging
import math
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from prometheus_client import CollectorRegistry

from seqserve_server.contract.errors import StartupError
from seqserve_server.front.telemetry.exposition import exposed

# Each connection holds a thread of the server's. Few are wanted at a time; one who takes longer to
# ask and to read is cut off.
_MOST_CONNECTIONS = 64
_TIMEOUT_S = 10.0
# How soon the port closes once it is told to, and how late a connection is cut off.
_POLL_S = 0.1

_log = logging.getLogger(__name__)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._deadlines: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Binds without looking up the name of the host, which can take long and is not used."""
        TCPServer.server_bind(self)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        """Answers in a thread, or hangs up where too many are under way."""
        if len(self._deadlines) >= _MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._deadlines[request] = time.monotonic() + _TIMEOUT_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """Hangs up."""
        self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cuts off who has taken too long, however busily."""
        self._cut_off(time.monotonic())

    def server_close(self) -> None:
        """Stops listening, and cuts off whoever is there."""
        super().server_close()
        self._cut_off(math.inf)

    def _cut_off(self, now_s: float) -> None:
        for request, deadline_s in self._deadlines.copy().items():
            if deadline_s <= now_s:
                # Its thread finds nobody there any more; it may have just hung up itself.
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs a fault of ours; a scraper that hangs up is its own affair."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("a scrape failed")


class ScrapeServer:
    """Answers from threads of its own."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, ready: Callable[[], bool]
    ) -> None:
        """Listens at once.

        Args:
            host: Address.
            port: 0 for any free one.
            registry: What ``/metrics`` shows.
            ready: Whether the server takes calls; what ``/readyz`` answers.

        Raises:
            StartupError: The port is taken, or the address is none of this machine.
        """
        handler = _handler(registry, ready)
        try:
            self._server = _Server((host, port), handler)
        except (OSError, UnicodeError) as error:
            raise StartupError(
                f"--metrics-port: cannot listen on {host} port {port}: {error};"
                " --metrics-port 0 takes any free one"
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="scrape", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(
    registry: CollectorRegistry, ready: Callable[[], bool]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            """Answers without a body."""
            self.do_GET()

        def do_GET(self) -> None:
            """Answers a scrape or a probe."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._send(200, *exposed(registry, self.headers.get("Accept", "")))
            elif path == "/healthz":
                self._send(200, b"alive\n")
            elif path == "/readyz":
                self._send(*((200, b"ready\n") if ready() else (503, b"not ready\n")))
            else:
                self._send(404, b"there are /metrics, /healthz and /readyz\n")

        def _send(self, code: int, body: bytes, content_type: str = "text/plain") -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing: a probe every second is no news."""

    return Handler
