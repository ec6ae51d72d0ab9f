"""Envoy with the configuration of ``deploy/envoy``, on free ports.

Its binary is in an environment of its own, ``build/envoy``, which ``make test-envoy`` makes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml  # type: ignore[import-untyped]
from tests.support.process import PATIENCE_S, ROOT, until

CONFIGURATION = ROOT / "deploy" / "envoy" / "envoy.yaml"
_MISSING = "build/envoy is missing: `make test-envoy` sets it up"


def binary() -> Path:
    """Returns the program itself: the command of the package is a script that starts it."""
    programs = list(ROOT.glob("build/envoy/lib/*/site-packages/envoy/_bin/envoy"))
    assert programs, _MISSING
    return programs[0]


def write_descriptor(path: Path) -> None:
    """Runs the script that writes what Envoy knows of the API."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(ROOT / "deploy" / "envoy" / "descriptor.py"), str(path)]
    subprocess.run(command, check=True, timeout=PATIENCE_S)


class Envoy:
    """A running Envoy in front of some servers; a context manager that ends it.

    Attributes:
        client: Sends requests to it.
        target: Host and port.
    """

    def __init__(self, targets: Sequence[str], folder: Path) -> None:
        """Starts it and waits until every server is healthy.

        Args:
            targets: Host and port of each server.
            folder: Where its files are written.
        """
        self._descriptor, self._admin_file = folder / "http.pb", folder / "admin"
        write_descriptor(self._descriptor)
        path = folder / "envoy.yaml"
        path.write_text(yaml.safe_dump(self._configuration(targets)), encoding="utf-8")
        command = [str(binary()), "--config-path", str(path), "--log-level", "warning"]
        # One worker, or the others would take cores from the servers.
        command += ["--admin-address-path", str(self._admin_file), "--concurrency", "1"]
        command += ["--use-dynamic-base-id"]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        try:
            until(self._admin_file.exists)
            until(lambda: bool(self._admin_file.read_text(encoding="utf-8")))
            until(lambda: self.healthy() == len(targets))
            until(lambda: bool(self._admin("/listeners")))
        except BaseException:
            self._end()
            raise
        [self.target] = re.findall(r"::(\S+:\d+)", self._admin("/listeners"))
        self.client = httpx.Client(
            base_url=f"http://{self.target}", timeout=PATIENCE_S, trust_env=False
        )

    def __enter__(self) -> Envoy:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._end()

    def healthy(self) -> int:
        return int(self._value("cluster.seqserve.membership_healthy"))

    def answered(self) -> list[int]:
        hosts = json.loads(self._admin("/clusters?format=json"))["cluster_statuses"][0]
        return [
            int(stat.get("value", 0))
            for host in hosts["host_statuses"]
            for stat in host["stats"]
            if stat["name"] == "rq_success"
        ]

    def _value(self, name: str) -> str:
        return self._admin(f"/stats?filter=^{name}$").rpartition(": ")[2] or "0"

    def _admin(self, path: str) -> str:
        address = self._admin_file.read_text(encoding="utf-8")
        return httpx.get(f"http://{address}{path}", timeout=PATIENCE_S, trust_env=False).text

    def _configuration(self, targets: Sequence[str]) -> dict[str, Any]:
        """Returns the shipped configuration with other addresses, and with the port of admins."""
        configuration: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
        configuration["admin"] = {"address": _socket("127.0.0.1:0")}
        [listener] = configuration["static_resources"]["listeners"]
        listener["address"] = _socket("127.0.0.1:0")
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        [transcoder] = [f for f in manager["http_filters"] if f["name"].endswith("_transcoder")]
        transcoder["typed_config"]["proto_descriptor"] = str(self._descriptor)
        [cluster] = configuration["static_resources"]["clusters"]
        [group] = cluster["load_assignment"]["endpoints"]
        group["lb_endpoints"] = [{"endpoint": {"address": _socket(name)}} for name in targets]
        return configuration

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


def _socket(target: str) -> dict[str, Any]:
    host, _, port = target.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}
