"""HTTP server for monitoring: ``/metrics``, ``/healthz`` and ``/readyz``."""

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

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

from seqserve_server.contract.errors import StartupError

_OPENMETRICS = "application/openmetrics-text"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"

_log = logging.getLogger(__name__)


class ScrapeServer(ThreadingHTTPServer):
    """Serves metrics and probes from its own threads, one for each connection."""

    daemon_threads = True
    # Connections that wait to be accepted; probes of a fleet may come all at once.
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        ready: Callable[[], bool],
        *,
        max_connections: int = 64,
        timeout_s: float = 10.0,
        poll_s: float = 0.1,
    ) -> None:
        """Begins to serve; 0 is any free port.

        Args:
            max_connections: Connections at a time; further ones are closed at once.
            timeout_s: Time that a scraper has to send its request and to read the answer.
            poll_s: Delay of a close or a cut-off.
        """
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.registry, self.ready = registry, ready
        self._max_connections, self._timeout_s = max_connections, timeout_s
        self._deadlines: dict[socket.socket, float] = {}
        try:
            super().__init__((host, port), _Handler)
        except (OSError, UnicodeError) as error:
            raise StartupError(
                f"--metrics-port: cannot listen on {host} port {port}: {error};"
                " --metrics-port 0 takes any free one"
            ) from None
        self.port = int(self.server_address[1])
        self._thread = threading.Thread(
            target=self.serve_forever, args=(poll_s,), name="scrape", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops listening, and cuts off all connections."""
        self.shutdown()
        self.server_close()
        self._cut_off(math.inf)
        self._thread.join()

    def server_bind(self) -> None:
        """Binds without the slow reverse lookup of the host name."""
        TCPServer.server_bind(self)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        """Answers in a thread; closes the connection if there are too many."""
        if len(self._deadlines) >= self._max_connections:
            self.shutdown_request(request)
            return
        self._deadlines[request] = time.monotonic() + self._timeout_s
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """Closes a connection."""
        self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cuts off connections that took too long, even if they still send."""
        self._cut_off(time.monotonic())

    def _cut_off(self, now_s: float) -> None:
        for request, deadline_s in self._deadlines.copy().items():
            if deadline_s <= now_s:
                # The thread of the connection ends then; it may have closed the socket meanwhile.
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs faults of the server, but not scrapers that close the connection."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("a scrape failed")


class _Handler(BaseHTTPRequestHandler):
    server: ScrapeServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._send(200, *render(self.server.registry, self.headers.get("Accept", "")))
        elif path == "/healthz":
            self._send(200, b"alive\n")
        elif path == "/readyz":
            self._send(*((200, b"ready\n") if self.server.ready() else (503, b"not ready\n")))
        else:
            self._send(404, b"there are /metrics, /healthz and /readyz\n")

    do_HEAD = do_GET

    def _send(self, code: int, body: bytes, content_type: str = "text/plain") -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        # Probes come every second.
        pass


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Formats the current values for a scraper; returns the text and its media type."""
    if _OPENMETRICS in accept:
        text = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return exposition.generate_latest(registry), _TEXT
