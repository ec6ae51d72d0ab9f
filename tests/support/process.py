"""Starts ``seqserve serve`` as an operator does, on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from seqserve import AsyncClient, RetryPolicy
from seqserve.errors import Unavailable

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
"""The shipped models."""
PATIENCE_S = 120.0
"""How long a test waits for a state that must come; only a failing test waits so long."""

FRONTS = os.environ.get("FRONTS", "1")
"""Front processes of every server that does not say how many it has."""

ONCE = RetryPolicy(max_attempts=1)

# A proxy of the machine cannot reach this process.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_READY = re.compile(r"seqserve ready on (\S+), metrics (http://\S+), models: .+")


def own_environment() -> dict[str, str]:
    """The variables of the test, none of which are a command's of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SEQSERVE_")}


def until(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Waits for a state that must come, and fails if it does not."""
    deadline_s, pause_s = time.monotonic() + patience_s, 0.01
    while not is_so():
        assert time.monotonic() < deadline_s, "the state was not reached"
        time.sleep(pause_s)
        # What takes long is asked less often: to be asked takes time of a server.
        pause_s = min(1.2 * pause_s, 0.05)


async def eventually(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Waits as :func:`until` does, while other tasks run."""
    await asyncio.to_thread(until, is_so, patience_s)


async def reached(client: AsyncClient) -> None:
    """Waits until a client that never retries has reached its server."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(Unavailable):
                await client.models()
                return
            await asyncio.sleep(0.1)


def members(group: int) -> list[int]:
    """Lists the running processes of a group.

    Source: Linux, proc_pid_stat(5), fields 3 (state) and 5 (pgrp).
    """
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name, field 2, is in brackets and may contain anything.
            state, _, its_group, *_ = file.read_text(encoding="utf-8").rpartition(")")[2].split()
            # A zombie has ended.
            if state != "Z" and int(its_group) == group:
                found.append(int(file.parent.name))
    return sorted(found)


def _runs(pid: int, module: bytes) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return module in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def _addresses(ready: str) -> tuple[str, str] | None:
    """Reads the addresses of gRPC and of /metrics from the line of a server that is ready."""
    if ready.startswith("{"):
        line = json.loads(ready)
        return line["address"], line["metrics"]
    found = _READY.match(ready)
    return (found[1], found[2]) if found else None


class ServerProcess:
    """A running server, once :meth:`wait_ready` returns; a context manager that ends it.

    It leads a group of processes, of which the others hold an engine each.
    """

    def __init__(
        self,
        repository: Path,
        folder: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = ("seqserve",),
    ) -> None:
        """Starts ``seqserve serve``; its output goes to files in ``folder``.

        Args:
            repository: Of its models.
            folder: Where ``stdout`` and ``stderr`` are, or will be.
            options: Of the command.
            environment: Variables beside those of the test, none of which are the server's.
            program: Module that runs the command, and its arguments.
        """
        ports = ("--port", "0", "--metrics-port", "0", "--front-processes", FRONTS)
        command = [sys.executable, "-m", *program, "serve"]
        # The last of two flags wins.
        arguments = ["--model-repository", str(repository), *ports, *options]
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command + arguments,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=own_environment() | dict(environment or {}),
                process_group=0,
            )
        self.repository = repository
        self.target = self.metrics_url = ""

    def __enter__(self) -> ServerProcess:
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_ready(self) -> None:
        """Waits for the line with its addresses."""
        until(lambda: "\n" in self.stdout or self._process.poll() is not None)
        found = _addresses(self.stdout)
        assert found, f"it did not start: {self.stdout}{self.stderr}"
        self.target, self.metrics_url = found[0], found[1].removesuffix("/metrics")

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[ServerProcess]:
        """Checks, once it was used, that no engine was restarted; then stops it."""
        with self:
            engines = self.engines()
            yield self
            assert self.engines() == engines, "an engine was restarted"
            self.stop()

    def signal_all(self, number: signal.Signals) -> None:
        """Signals every process of it, as a terminal does."""
        os.killpg(self.pid, number)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def stop(self) -> None:
        """Ends it as an operator does, and checks that it ends well."""
        self.signal(signal.SIGTERM)
        assert self.wait() == 0
        assert "Traceback" not in self.stderr, "something went wrong unnoticed"

    def kill(self) -> None:
        """Kills it if it runs, and waits until none of its processes is left."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        # The engine processes notice it and end too.
        until(lambda: not members(self.pid))

    @property
    def pid(self) -> int:
        return self._process.pid

    def engines(self) -> list[int]:
        return [pid for pid in members(self.pid) if _runs(pid, b"seqserve_server.engine")]

    def fronts(self) -> list[int]:
        """Lists its front processes, if it has several."""
        return [
            pid for pid in members(self.pid) if _runs(pid, b"seqserve_server.serve.front_process")
        ]

    @property
    def stdout(self) -> str:
        return self._stdout.read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(encoding="utf-8")

    def health(self, service: str) -> int:
        """Asks whether a service, a model or a version is up."""
        with grpc.insecure_channel(self.target) as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            status = health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE_S).status
        return int(status)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with _DIRECT.open(self.metrics_url + path, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def value(self, sample_name: str, **labels: str) -> float:
        """Scrapes now and sums the samples with this name and these labels."""
        return self._sum([sample_name], labels)

    def _sum(self, names: Sequence[str], labels: Mapping[str, str]) -> float:
        begins = tuple(f"seqserve_{name}{end}" for name in names for end in " {")
        page = self.get("/metrics")[1].splitlines()
        # Of hundreds of lines only these are read, for tests scrape again and again.
        lines = "".join(f"{line}\n" for line in page if line.startswith(begins))
        return sum(
            sample.value
            for family in text_string_to_metric_families(lines)
            for sample in family.samples
            if labels.items() <= sample.labels.items()
        )

    def calls_by_code(self) -> Counter[str]:
        """Counts the calls of all methods that have ended, by status."""
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == "seqserve_requests_total":
                    found[sample.labels["code"]] += int(sample.value)
        return found

    def rows_in_use(self) -> float:
        return self.value("slots_in_use")

    def under_way(self) -> float:
        """Counts the rows that run and the requests that wait."""
        return self._sum(["slots_in_use", "queue_depth"], {})

    def is_idle(self) -> bool:
        return not self.under_way()


@contextlib.contextmanager
def repeating(action: Callable[[], None], pause_s: float) -> Iterator[None]:
    """Repeats an action in a thread, after a pause each time, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause_s):
            action()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
