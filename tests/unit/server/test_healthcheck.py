from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from seqserve_server import healthcheck
from seqserve_server.healthcheck import HealthcheckOptions

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def servicer(monkeypatch: pytest.MonkeyPatch) -> Iterator[health.HealthServicer]:
    """The health of a real server, which the variables point at."""
    servicer = health.HealthServicer()
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        monkeypatch.setenv("SEQSERVE_HOST", "0.0.0.0")
        monkeypatch.setenv("SEQSERVE_PORT", str(port))
        yield servicer
        server.stop(None).wait()


def test_a_server_that_takes_calls_is_healthy(servicer: health.HealthServicer) -> None:
    servicer.set("", SERVING)
    assert healthcheck.main([]) == 0


def test_a_server_that_drains_is_not(
    servicer: health.HealthServicer, capsys: pytest.CaptureFixture[str]
) -> None:
    servicer.set("", NOT_SERVING)
    assert healthcheck.main([]) == 1
    assert "NOT_SERVING" in capsys.readouterr().out


def test_one_sound_model_is_not_asked_for(servicer: health.HealthServicer) -> None:
    """The whole server counts: one model that failed must not restart the others."""
    servicer.set("", SERVING)
    servicer.set("en-de", NOT_SERVING)
    assert healthcheck.main([]) == 0


def test_no_server_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert healthcheck.main(["--port", str(port)]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().out


def test_a_server_that_does_not_answer_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healthcheck, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert healthcheck.main(["--port", str(mute.getsockname()[1])]) == 1


def test_a_proxy_for_the_outside_is_not_asked(
    servicer: health.HealthServicer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    servicer.set("", SERVING)
    assert healthcheck.main([]) == 0


def test_a_variable_that_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQSERVE_PORT", "http")
    assert healthcheck.main([]) == 1
    assert "SEQSERVE_PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("127.0.0.1", "127.0.0.1:50051"),
        ("0.0.0.0", "127.0.0.1:50051"),
        ("10.1.2.3", "10.1.2.3:50051"),
        ("::", "[::1]:50051"),
        ("[::]", "[::1]:50051"),
        ("fd00::1", "[fd00::1]:50051"),
        ("[fd00::1]", "[fd00::1]:50051"),
        ("server", "server:50051"),
    ],
)
def test_asks_where_the_server_listens(host: str, target: str) -> None:
    assert healthcheck._target(HealthcheckOptions(host=host)) == target


def test_a_probe_loads_nothing_heavy() -> None:
    """It runs every ten seconds, beside a server that wants the cores."""
    script = (
        "import sys, seqserve_server.healthcheck;"
        "print(sorted({'numpy', 'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
