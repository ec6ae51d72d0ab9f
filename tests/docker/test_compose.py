"""Runs docker-compose.yml and calls it from the host, as docs/deploy.md describes."""

import json
import os
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.process import ROOT, until

from seqserve import Client, __version__
from seqserve.errors import CallError

from .conftest import SERVER_IMAGE, Docker
from .ports import free_ports

pytestmark = pytest.mark.docker


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The containers of `docker compose up`."""

    docker: Docker
    server: str
    """Id of the server's container."""
    target: str
    gateway: str
    """Address of its HTTP."""
    prometheus: str
    """Address of its API."""

    def inspect(self, template: str) -> str:
        return self.docker.run("inspect", "--format", template, self.server).strip()

    def sh(self, script: str) -> str:
        return self.docker.run("exec", self.server, "sh", "-c", script).strip()

    def ask_prometheus(self, path: str, **parameters: str) -> Any:
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as reply:
            return json.load(reply)["data"]


@pytest.fixture(scope="module")
def stack(docker: Docker, server_image: str) -> Iterator[Stack]:
    port, metrics_port, gateway_port, prometheus_port = free_ports(4)
    variables = {
        "COMPOSE_PROJECT_NAME": f"seqserve-test-{os.getpid()}",
        "SEQSERVE_IMAGE": server_image,
        "SEQSERVE_MODEL_REPOSITORY": str(ROOT / "models"),
        "SEQSERVE_PORT": str(port),
        "SEQSERVE_METRICS_PORT": str(metrics_port),
        "GATEWAY_PORT": str(gateway_port),
        "PROMETHEUS_PORT": str(prometheus_port),
    }

    def compose(*arguments: str) -> str:
        return docker.compose(*arguments, variables=variables, timeout_s=600)

    try:
        try:
            # Waits for the server to be healthy, as Prometheus depends on it.
            compose("up", "--detach", "--no-build")
        except Exception as error:
            raise AssertionError(f"{error}\n{compose('logs')}") from error
        yield Stack(
            docker=docker,
            server=compose("ps", "--quiet", "server").strip(),
            target=f"127.0.0.1:{port}",
            gateway=f"http://127.0.0.1:{gateway_port}",
            prometheus=f"http://127.0.0.1:{prometheus_port}",
        )
    finally:
        compose("down", "--volumes", "--timeout", "10")


def test_the_server_is_healthy(stack: Stack) -> None:
    assert stack.inspect("{{.State.Health.Status}}") == "healthy"


def test_the_worst_permitted_calls_of_a_caller_fit_its_memory(stack: Stack) -> None:
    source = "The old train waits near the quiet garden and nobody knows why. " * 7
    options = {"beam_size": 32, "num_hypotheses": 32, "return_top_tokens": 64}
    options |= {"min_decoding_length": 128, "max_decoding_length": 128, "return_attention": True}

    def widest(number: int) -> str:
        try:
            return client.generate(source, **options).text
        except CallError:
            # Refused, or too long for a tiny model: what counts is that the server goes on.
            return ""

    # More of them, and from more callers, are in tests/e2e/test_answer_memory.py.
    with Client(stack.target, timeout_s=600.0) as client, ThreadPoolExecutor(4) as threads:
        list(threads.map(widest, range(4)))
        assert client.generate("We saw a good film.", max_decoding_length=8).tokens
    assert stack.inspect("{{.State.OOMKilled}}") == "false"
    assert stack.inspect("{{.RestartCount}}") == "0"


def test_client_on_the_host_is_answered(stack: Stack) -> None:
    with Client(stack.target, timeout_s=300.0) as client:
        result = client.generate("We saw a good film.", max_decoding_length=8)
        pieces = list(client.stream("We saw a good film.", max_decoding_length=8))
    assert 1 <= len(result.tokens) <= 8
    assert "".join(piece.text for piece in pieces) == result.text


def test_prometheus_counts_the_calls(stack: Stack) -> None:
    with Client(stack.target, timeout_s=300.0) as client:
        model = client.generate("The coffee tastes good.", max_decoding_length=4).model

    query = f'sum(seqserve_requests_total{{code="OK",model="{model}"}}) >= 1'
    eventually(lambda: bool(stack.ask_prometheus("query", query=query)["result"]))


def test_gateway_answers_and_is_scraped(stack: Stack) -> None:
    def status(path: str, body: bytes | None = None) -> int:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(stack.gateway + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return int(reply.status)
        except OSError:
            return 0

    eventually(lambda: status("/readyz") == 200)
    assert status("/v1/generate", b'{"source": "The coffee tastes good."}') == 200
    query = 'sum(seqserve_http_requests_total{code="OK"})'
    eventually(lambda: bool(stack.ask_prometheus("query", query=query)["result"]))


def test_prometheus_evaluates_every_rule(stack: Stack) -> None:
    def healths() -> set[str]:
        groups = stack.ask_prometheus("rules")["groups"]
        return {rule["health"] for group in groups for rule in group["rules"]}

    # Before the first evaluation there may be no group at all.
    eventually(lambda: bool(healths()) and "unknown" not in healths())
    assert healths() == {"ok"}


def test_no_alert_fires(stack: Stack) -> None:
    alerts = stack.ask_prometheus("alerts")["alerts"]
    assert [alert for alert in alerts if alert["state"] == "firing"] == []


def test_the_server_is_unprivileged_and_cannot_write(stack: Stack) -> None:
    assert stack.sh("id -u") == "10001"
    assert stack.sh("grep CapBnd /proc/1/status | cut -f 2") == "0" * 16
    assert stack.sh("grep NoNewPrivs /proc/1/status | cut -f 2") == "1"
    for folder in ("/", "/tmp", "/models", "/opt/seqserve"):
        assert stack.sh(f"touch {folder}/x 2>/dev/null || echo refused") == "refused"


def test_the_image_has_no_installer_and_no_torch(stack: Stack) -> None:
    modules = "pip", "setuptools", "torch", "onnx"
    script = f"import importlib.util as u; print([m for m in {modules!r} if u.find_spec(m)])"
    assert stack.docker.run("exec", stack.server, "python", "-c", script).strip() == "[]"


def test_the_image_is_small(stack: Stack) -> None:
    size = int(stack.docker.run("image", "inspect", "--format", "{{.Size}}", SERVER_IMAGE))
    print(f"the image unpacks to {size / 1e6:.0f} MB")
    assert size < 600e6


def test_the_image_tells_what_it_is(stack: Stack) -> None:
    labels = json.loads(stack.inspect("{{json .Config.Labels}}"))
    prefix = "org.opencontainers.image"
    assert labels[f"{prefix}.title"] == "seqserve"
    assert labels[f"{prefix}.version"] == __version__
    assert "Apache-2.0" in labels[f"{prefix}.licenses"]


def test_the_server_stops_cleanly(stack: Stack) -> None:
    """The last test of the file: it stops the server."""
    stack.docker.run("stop", "--time", "45", stack.server)
    assert stack.inspect("{{.State.ExitCode}}") == "0"
    assert stack.inspect("{{.State.OOMKilled}}") == "false"


def eventually(is_so: Callable[[], bool]) -> None:
    """Waits for what a scrape and a rule, which take some seconds, must bring."""
    until(is_so, patience_s=300)
