import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.server.front.telemetry.test_scrape import Readiness

from seqserve_server.front import healthcheck
from seqserve_server.front.telemetry.scrape import ScrapeServer


@pytest.fixture
def readiness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readiness]:
    """Serves ``/readyz`` at the port that the environment variables name."""
    readiness = Readiness()
    server = ScrapeServer("127.0.0.1", 0, CollectorRegistry(), readiness)
    monkeypatch.setenv("SEQSERVE_METRICS_HOST", "0.0.0.0")
    monkeypatch.setenv("SEQSERVE_METRICS_PORT", str(server.port))
    yield readiness
    server.close()


def test_healthy_if_it_takes_calls(
    readiness: Readiness, capsys: pytest.CaptureFixture[str]
) -> None:
    assert healthcheck.main([]) == 0
    assert capsys.readouterr().out.endswith(": ready\n")
    readiness.is_ready = False
    assert healthcheck.main([]) == 1
    assert "not ready" in capsys.readouterr().out


def test_no_server_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert healthcheck.main(["--metrics-port", str(port)]) == 1
    assert "ConnectionRefusedError" in capsys.readouterr().out


def test_a_server_that_does_not_answer_is_not_healthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert healthcheck.main(["--metrics-port", str(mute.getsockname()[1])], 0.2) == 1


def test_no_proxy_is_asked(readiness: Readiness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert healthcheck.main([]) == 0


def test_a_variable_that_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQSERVE_METRICS_PORT", "http")
    assert healthcheck.main([]) == 1
    assert "SEQSERVE_METRICS_PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "127.0.0.1:9"), ("127.0.0.1", "127.0.0.1:9"), ("::", "[::1]:9")],
)
def test_asks_where_it_listens(host: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    healthcheck.main(["--metrics-host", host, "--metrics-port", "9"])
    assert capsys.readouterr().out.startswith(f"{address}: ")


def test_a_probe_loads_nothing_heavy() -> None:
    """It runs every ten seconds, beside a server that wants the cores."""
    script = (
        "import sys, seqserve_server.front.healthcheck;"
        "print(sorted({'numpy', 'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
