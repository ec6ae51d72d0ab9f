import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as of_openmetrics
from prometheus_client.parser import text_string_to_metric_families as of_text
from tests.unit.server.front.telemetry.test_metrics import GENERATE, metrics_of_a_server

from seqserve_server.contract.errors import StartupError
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.front.telemetry.scrape import ScrapeServer, render

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Readiness:
    is_ready = True

    def __call__(self) -> bool:
        return self.is_ready


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
def scrape(readiness: Readiness) -> Iterator[ScrapeServer]:
    registry = CollectorRegistry()
    Counter("seqserve_things", "Things.", registry=registry).inc(3)
    server = ScrapeServer("127.0.0.1", 0, registry, readiness)
    yield server
    server.close()


def get(server: ScrapeServer, path: str, **headers: str) -> tuple[int, str, str]:
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    try:
        with _DIRECT.open(asked, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4"])
def test_plain_text_is_the_default(scrape: ScrapeServer, accept: str) -> None:
    code, kind, body = get(scrape, "/metrics?x=1", **({"Accept": accept} if accept else {}))
    assert code == 200 and kind.startswith("text/plain; version=0.0.4")
    assert "seqserve_things_total 3.0" in body and "# EOF" not in body and " # {" not in body


def test_metrics_in_openmetrics(scrape: ScrapeServer) -> None:
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
    code, kind, body = get(scrape, "/metrics", Accept=accept)
    assert code == 200 and kind.startswith("application/openmetrics-text; version=1.0.0")
    assert "seqserve_things_total 3.0" in body and body.endswith("# EOF\n")


def test_probes(scrape: ScrapeServer, readiness: Readiness) -> None:
    assert get(scrape, "/healthz")[0] == get(scrape, "/readyz")[0] == 200
    readiness.is_ready = False
    assert get(scrape, "/readyz")[0] == 503
    assert get(scrape, "/healthz")[0] == 200


def test_other_paths(scrape: ScrapeServer) -> None:
    code, _, body = get(scrape, "/")
    assert code == 404 and "/metrics" in body


def test_head_has_no_body(scrape: ScrapeServer) -> None:
    answer = exchange(scrape, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200") and b"Content-Length: " in head and not body


@pytest.mark.parametrize(
    ("sent", "code"),
    [(b"POST /metrics HTTP/1.1\r\n\r\n", b"501"), (b"\xff\x00\r\n\r\n", b"400"), (b"", b"")],
)
def test_what_is_no_scrape_does_no_harm(
    scrape: ScrapeServer, sent: bytes, code: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code in exchange(scrape, sent)
    assert get(scrape, "/healthz")[0] == 200
    assert capsys.readouterr().err == ""


def test_only_faults_are_logged(scrape: ScrapeServer, caplog: pytest.LogCaptureFixture) -> None:
    for error in (BrokenPipeError(), ValueError("a fault of ours")):
        try:
            raise error
        except (OSError, ValueError):
            scrape.handle_error(None, None)
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


@pytest.mark.parametrize("trickle", [b"", b"x", b"GET /healthz HTTP/1.1\r\nX: 1\r\n"])
def test_slow_client_is_cut_off(readiness: Readiness, trickle: bytes) -> None:
    """Also a client that sends a little now and then."""
    registry, times = CollectorRegistry(), {"timeout_s": 0.2, "poll_s": 0.02}
    server = ScrapeServer("127.0.0.1", 0, registry, readiness, **times)  # type: ignore[arg-type]
    before = set(threading.enumerate())
    try:
        with connected(server) as connection:
            began_s = time.monotonic()
            connection.settimeout(0.02)
            while time.monotonic() < began_s + 100:
                try:
                    connection.sendall(trickle)
                    if not connection.recv(1):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            assert 0.1 < time.monotonic() - began_s < 60
        until_begun(0, before)
    finally:
        server.close()


def test_no_more_connections_than_allowed(readiness: Readiness) -> None:
    registry = CollectorRegistry()
    scrape = ScrapeServer("127.0.0.1", 0, registry, readiness, max_connections=2)
    before = set(threading.enumerate())
    with connected(scrape), connected(scrape):
        until_begun(2, before)
        for _ in range(3):
            with connected(scrape) as third:
                assert third.recv(1) == b""
        assert begun(before) == 2
    until_begun(0, before)
    assert get(scrape, "/healthz")[0] == 200
    scrape.close()


def test_port_that_closes_leaves_nobody(readiness: Readiness) -> None:
    before = set(threading.enumerate())
    server = ScrapeServer("127.0.0.1", 0, CollectorRegistry(), readiness)
    with connected(server) as connection:
        until_begun(2, before)
        server.close()
        assert connection.recv(1) == b""
    until_begun(0, before)


def connected(server: ScrapeServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def begun(before: set[threading.Thread]) -> int:
    """Counts threads that have begun; those of other tests may end meanwhile."""
    return len(set(threading.enumerate()) - before)


def until_begun(count: int, before: set[threading.Thread]) -> None:
    deadline_s = time.monotonic() + 60
    while begun(before) != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def exchange(server: ScrapeServer, data: bytes) -> bytes:
    with connected(server) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_ports(scrape: ScrapeServer, readiness: Readiness) -> None:
    with pytest.raises(StartupError, match=f"--metrics-port.*{scrape.port}"):
        ScrapeServer("127.0.0.1", scrape.port, CollectorRegistry(), readiness)
    # All addresses of IPv6 are those of IPv4 too.
    server = ScrapeServer("::", 0, CollectorRegistry(), readiness)
    assert get(server, "/healthz")[0] == 200
    server.close()
    # It is free again.
    ScrapeServer("127.0.0.1", server.port, CollectorRegistry(), readiness).close()


OPENMETRICS = "application/openmetrics-text;version=1.0.0,*/*;q=0.1"

Parse = Callable[[str], Iterable[Metric]]


def series(metrics: Metrics, accept: str, parse: Parse) -> set[tuple[str, frozenset[object]]]:
    families = parse(render(metrics.registry, accept)[0].decode())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())) for sample in samples}


def test_series_do_not_depend_on_the_format() -> None:
    metrics = metrics_of_a_server()
    # The parser refuses what the format does not allow, such as two families of one name.
    assert series(metrics, OPENMETRICS, of_openmetrics) == series(metrics, "", of_text)


def test_bucket_has_its_last_call_as_exemplar() -> None:
    metrics = Metrics()
    for id_, duration_s in (("first", 0.0101), ("second", 0.0102), ("slow", 30.0)):
        metrics.called("m", 0, *GENERATE, duration_s, {"trace_id": id_})
    text = render(metrics.registry, OPENMETRICS)[0].decode()
    exemplars = [
        sample.exemplar
        for family in of_openmetrics(text)
        if family.name == "seqserve_request_duration_seconds"
        for sample in family.samples
        if sample.exemplar
    ]
    found = [(exemplar.labels["trace_id"], exemplar.value) for exemplar in exemplars]
    assert found == [("second", 0.0102), ("slow", 30.0)]
