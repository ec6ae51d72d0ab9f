"""The HTTP port: what each path answers."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from seqserve_server.errors import StartupError
from seqserve_server.scrape import ScrapeServer

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


def get(server: ScrapeServer, path: str) -> tuple[int, str, str]:
    try:
        with _DIRECT.open(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_metrics(scrape: ScrapeServer) -> None:
    code, kind, body = get(scrape, "/metrics?x=1")
    assert code == 200 and kind.startswith("text/plain; version=0.0.4")
    assert "seqserve_things_total 3.0" in body


def test_probes(scrape: ScrapeServer, readiness: Readiness) -> None:
    assert get(scrape, "/healthz")[0] == get(scrape, "/readyz")[0] == 200
    readiness.is_ready = False
    assert get(scrape, "/readyz")[0] == 503
    assert get(scrape, "/healthz")[0] == 200


def test_other_paths(scrape: ScrapeServer) -> None:
    code, _, body = get(scrape, "/")
    assert code == 404 and "/metrics" in body


def test_port_that_is_taken(scrape: ScrapeServer, readiness: Readiness) -> None:
    with pytest.raises(StartupError, match=f"--metrics-port.*{scrape.port}"):
        ScrapeServer("127.0.0.1", scrape.port, CollectorRegistry(), readiness)


def test_port_is_free_again(readiness: Readiness) -> None:
    first = ScrapeServer("127.0.0.1", 0, CollectorRegistry(), readiness)
    first.close()
    ScrapeServer("127.0.0.1", first.port, CollectorRegistry(), readiness).close()
