"""Runs the commands of docs/operations.md, from certificates to a killed server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .ports import free_pair, free_ports

if TYPE_CHECKING:
    from .conftest import Docker

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations.md"
NEXT = "=== next block"
# What a reader does between two commands: wait.
_UNTIL = "until curl --silent --fail '{url}' | grep -q '{answer}'; do sleep 0.5; done"


def script(docker: Docker, ports: dict[str, int]) -> str:
    """The commands of the page, with the ports and the clients of this machine."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    ready = _UNTIL.format(url="localhost:5000/readyz", answer="")
    both = _UNTIL.format(
        url="localhost:9090/api/v1/query?query=sum(up%7Bjob=%22seqserve%22%7D)", answer='"2"'
    )
    text = f"\necho '{NEXT}'\n".join(
        f"{wait}\n{block}"
        for wait, block in zip(("", "", ready, both, "", ""), blocks, strict=True)
    )
    text = text.replace("pip install .\n", "")
    text = text.replace("docker compose", " ".join(docker.compose_client))
    text = text.replace("docker kill", f"{docker.client} kill")
    for port, free in ports.items():
        text = re.sub(rf"localhost:{port}\b", f"localhost:{free}", text)
    return text


@pytest.fixture(scope="module")
def shown(docker: Docker, server_image: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the commands print, by block."""
    folder = tmp_path_factory.mktemp("operations")
    shutil.copy(ROOT / "docker-compose.yml", folder)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    (first, second), (metrics, _) = free_pair(), free_pair()
    gateway, prometheus = free_ports(2)
    ports = {"50051": first, "50052": second, "5000": gateway, "9090": prometheus}
    environment = {
        **docker.environment,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{docker.environment['PATH']}",
        "COMPOSE_PROJECT_NAME": f"seqserve-operations-{os.getpid()}",
        "SEQSERVE_IMAGE": server_image,
        "SEQSERVE_MODEL_REPOSITORY": str(ROOT / "models"),
        "SEQSERVE_PORT": f"{first}-{second}",
        "SEQSERVE_METRICS_PORT": f"{metrics}-{metrics + 1}",
        "GATEWAY_PORT": str(gateway),
        "PROMETHEUS_PORT": str(prometheus),
    }

    def sh(text: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-eu", "-c", text]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1200
        )

    compose = " ".join(docker.compose_client)
    try:
        done = sh(script(docker, ports))
        logs = sh(f"{compose} logs --tail 20").stdout if done.returncode else ""
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{logs}"
    finally:
        sh(f"{compose} down --volumes --timeout 10")
    return done.stdout.split(NEXT)


def test_both_servers_are_called_with_a_token(shown: list[str]) -> None:
    assert "en-de" in shown[2]
    assert "Kaffee" in shown[2]
    assert '"hypotheses"' in shown[2]


def test_prometheus_sees_both_and_no_alert_fires(shown: list[str]) -> None:
    assert '"2"' in shown[3]
    assert '"state":"firing"' not in shown[3]


def test_calls_go_on_when_one_is_killed(shown: list[str]) -> None:
    assert "Film" in shown[4]


def test_another_token_is_taken_without_a_restart(shown: list[str]) -> None:
    assert "regnet" in shown[5]
