import http.client
import json
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.certificates import make_certificates
from tests.support.process import until
from tests.unit.client.fake_server import PATIENCE_S, FakeServer
from tests.unit.gateway.without_socket import gateway_of

from seqserve.errors import OptionError
from seqserve_gateway.app import app_of
from seqserve_gateway.endpoint import Gateway
from seqserve_gateway.listener import run, within_files
from seqserve_gateway.processes import listener_at
from seqserve_gateway.protocol import ListenerLimits
from seqserve_gateway.v1 import FORM

HEAD = b"POST /v1/generate HTTP/1.1\r\nHost: localhost\r\n"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Running:
    gateway: Gateway
    port: int

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S, (source, 0))

    def connections(self) -> float:
        return self.gateway.metrics.connections.collect()[0].samples[0].value

    def request(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, JSON if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def generate(self, source: str) -> tuple[int, str]:
        return self.request("POST", "/v1/generate", json.dumps({"source": source}))


@contextmanager
def running(
    server: FakeServer,
    limits: ListenerLimits,
    certificate: tuple[Path, Path] | None = None,
    host: str = "127.0.0.1",
) -> Iterator[Running]:
    """Runs a gateway in a thread; it ends once it has drained."""
    gateway = gateway_of(server)
    listener = listener_at(host, 0, "--port")
    arguments = (app_of(gateway, [FORM]), listener, gateway, within_files(limits), certificate)
    thread = threading.Thread(target=run, args=arguments)
    port = listener.getsockname()[1]
    thread.start()
    try:
        yield Running(gateway, port)
    finally:
        gateway.admission.is_open = False
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@contextmanager
def connected(server: FakeServer, limits: ListenerLimits) -> Iterator[socket.socket]:
    """Yields a connection to a gateway that runs."""
    with running(server, limits) as gateway, gateway.connect() as connection:
        yield connection


def ends(connection: socket.socket) -> bool:
    """Waits until the other side closes, and tells whether it does without a word."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"POST", HEAD, HEAD + b"X-A: b\r\n"])
def test_half_of_the_headers_is_not_waited_for_long(server: FakeServer, sent: bytes) -> None:
    with connected(server, ListenerLimits(header_timeout_s=0.1)) as connection:
        connection.sendall(sent)
        assert ends(connection)


def test_headers_a_byte_at_a_time_are_cut_off(server: FakeServer) -> None:
    with (
        connected(server, ListenerLimits(header_timeout_s=0.2)) as connection,
        pytest.raises(OSError),
    ):
        for _ in range(10_000):
            connection.sendall(b"x")
            threading.Event().wait(0.01)


@pytest.mark.parametrize(
    ("limits", "more"),
    [(ListenerLimits(keep_alive_s=1), b""), (ListenerLimits(header_timeout_s=2), b"GET /he")],
    ids=["idle", "half of a second request"],
)
def test_connection_is_closed_after_a_request(
    server: FakeServer, limits: ListenerLimits, more: bytes
) -> None:
    with connected(server, limits) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"alive\n"):
            answer += connection.recv(4096)
        connection.sendall(more)
        assert ends(connection)


def test_connection_whose_answers_nobody_reads_is_closed(server: FakeServer) -> None:
    with (
        running(server, ListenerLimits(keep_alive_s=1)) as gateway,
        gateway.connect() as connection,
    ):
        # More than the buffers of the network take.
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
        until(lambda: gateway.request("GET", "/healthz")[0] == 200)
        assert gateway.connections() >= 1
        until(lambda: gateway.connections() == 0)


def test_headers_without_end_are_cut_off(server: FakeServer) -> None:
    with connected(server, ListenerLimits()) as connection, pytest.raises(OSError):
        connection.sendall(HEAD)
        for _ in range(1000):
            connection.sendall(b"X-Long: " + b"x" * 4096 + b"\r\n")


@pytest.mark.parametrize(("size", "status"), [(60 << 10, 200), (65 << 10, 400)])
def test_headers_that_come_at_once_are_bound(server: FakeServer, size: int, status: int) -> None:
    headers = {f"X-{number}": "x" * 1024 for number in range(size >> 10)}
    with running(server, ListenerLimits()) as gateway:
        answer = httpx.get(f"http://127.0.0.1:{gateway.port}/healthz", headers=headers)
    assert answer.status_code == status


def test_sender_of_too_much_learns_why(server: FakeServer) -> None:
    with running(server, ListenerLimits()) as gateway:
        status, text = gateway.generate("x" * (8 << 20))
    assert (status, json.loads(text)["status"]) == (413, 413)


def test_two_thousand_slow_connections_keep_nobody_out(server: FakeServer) -> None:
    body = b'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"source":'
    parts = (b"", b"GET", HEAD, HEAD + body)
    with running(server, ListenerLimits(header_timeout_s=600)) as gateway, ExitStack() as stack:
        for number in range(2000):
            connection = stack.enter_context(gateway.connect())
            connection.sendall(parts[number % len(parts)])
        assert gateway.request("GET", "/healthz")[0] == 200
        assert gateway.generate("a b")[0] == 200
        metrics = gateway.request("GET", "/metrics")[1]
        assert "seqserve_http_connections 2001.0" in metrics
        assert "seqserve_http_requests_in_progress 0.0" in metrics


def test_call_in_progress_is_finished_and_no_other_begun(server: FakeServer) -> None:
    with (
        running(server, ListenerLimits()) as gateway,
        ThreadPoolExecutor() as pool,
        gateway.connect() as connection,
    ):
        in_progress = pool.submit(gateway.generate, "hang on")
        until(lambda: bool(server.requests))
        gateway.gateway.admission.is_open = False
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 503 " in connection.recv(4096)
        server.cancelled.set()
        assert in_progress.result(PATIENCE_S)[0] == 200


def generation(source: str) -> bytes:
    body = json.dumps({"source": source}).encode()
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return HEAD + length.encode() + body


def test_client_that_leaves_ends_its_call_on_the_server(server: FakeServer) -> None:
    with running(server, ListenerLimits()) as gateway:
        with gateway.connect() as connection:
            connection.sendall(generation("hang on"))
            until(lambda: bool(server.requests))
        assert server.cancelled.wait(PATIENCE_S)


def test_client_that_leaves_before_its_many_answers_is_no_fault(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with running(server, ListenerLimits()) as gateway:
        with gateway.connect() as connection:
            connection.sendall(generation("hang on") + generation("one") * 50)
            until(lambda: bool(server.requests))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.cancelled.set()
        until(lambda: gateway.connections() == 0)
        until(lambda: gateway.gateway.admission.in_progress == 0)
        _, metrics = gateway.request("GET", "/metrics")
    assert 'code="INTERNAL"' not in metrics and caplog.text == ""


def test_calls_are_encrypted_by_the_new_certificate_too(server: FakeServer, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
    certificates, renewed = make_certificates(mine), make_certificates(other)

    def trusts(ca: Path) -> bool:
        context = ssl.create_default_context(cafile=ca)
        connection = http.client.HTTPSConnection("localhost", gateway.port, context=context)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except ssl.SSLCertVerificationError:
            return False
        finally:
            connection.close()

    with running(server, ListenerLimits(), certificates.server) as gateway:
        assert trusts(certificates.ca)
        assert not trusts(renewed.ca)
        certificates.replace_server(renewed)
        until(lambda: trusts(renewed.ca))


def test_taken_address_is_refused_by_its_flag() -> None:
    with listener_at("127.0.0.1", 0, "--port") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=r"--listen: cannot listen on .*; --listen 0"):
            listener_at("127.0.0.1", port, "--listen")


def test_all_addresses_of_ipv6_are_those_of_ipv4_too(server: FakeServer) -> None:
    with running(server, ListenerLimits(), host="::") as gateway:
        assert gateway.generate("a b")[0] == 200
    assert dict(server.metadata[0])["x-forwarded-for"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("soft", "hard", "raised_to", "connections"),
    [
        (64, -1, 4224, 4096),
        (9000, -1, 9000, 4096),
        (-1, -1, None, 4096),
        (64, 8192, 8192, 4096),
        (64, 1024, 1024, 896),
    ],
)
def test_connections_are_as_many_as_open_files_allow(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised_to: int | None, connections: int
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    assert within_files(ListenerLimits()).max_connections == connections
    assert raised == ([] if raised_to is None else [(raised_to, hard)])
    # Too few are refused before the start.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 128))
    with pytest.raises(OptionError, match=r"is 128, .* `ulimit -n 1024`"):
        within_files(ListenerLimits())


def test_gateway_starts_where_files_have_no_limit_as_on_windows() -> None:
    code = (
        "import sys; sys.modules['resource'] = None\n"
        "from seqserve_gateway.listener import ListenerLimits, within_files\n"
        "sys.platform = 'win32'\n"
        "print(within_files(ListenerLimits()).max_connections)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout == "4096\n", process.stderr
