"""A Prometheus with the shipped rules that scrapes servers of a test every second."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.process import PATIENCE_S, ROOT, until

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
_MISSING = "prometheus is not installed: apt-get install prometheus"
# A proxy of the machine cannot reach this process.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Prometheus:
    """A running Prometheus; a context manager that ends it."""

    def __init__(self, jobs: dict[str, str], labels: dict[str, str], folder: Path) -> None:
        """Starts it.

        Args:
            jobs: Host and port of what to scrape, by the name of its job.
            labels: What the scrape adds to each series.
            folder: For its files.
        """
        program = shutil.which("prometheus")
        assert program, _MISSING
        scrapes = [
            {"job_name": job, "static_configs": [{"targets": [target], "labels": labels}]}
            for job, target in jobs.items()
        ]
        interval = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        settings = {"global": interval, "rule_files": [str(RULES)], "scrape_configs": scrapes}
        configuration = folder / "prometheus.yml"
        configuration.write_text(json.dumps(settings), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={configuration}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Prometheus:
        until(lambda: self._is_up() or self._process.poll() is not None)
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def get(self, path: str, **parameters: str) -> Any:
        """Asks its API.

        Raises:
            HTTPError: It refuses the question, such as a query that it cannot parse.
        """
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with _DIRECT.open(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns the series of an expression now: labels, and a value each."""
        return list(self.get("query", query=expression)["result"])

    def _is_up(self) -> bool:
        try:
            return bool(self.get("status/runtimeinfo"))
        except OSError:
            return False
