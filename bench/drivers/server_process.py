"""Servers in separate processes, with their CPU time and memory."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.drivers import Closing, libretranslate
from seqserve.processes import available_cores
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.text.tokenizer import Tokenizer

_READY = re.compile(r".*(?:ready|gateway) on (?:http://)?([^\s,]+)(?:, metrics ([^\s,]+))?")
_FRONT = "seqserve_server.serve.front_process"
# Time for calls in flight to end.
_PATIENCE_S = 30.0
# A proxy does not know the way to this machine.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server."""

    name: str
    module: str
    arguments: Sequence[str]
    interpreter: str = sys.executable
    """Of its environment."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """In addition to this process's variables."""
    is_http: bool = False
    """Whether it has LibreTranslate's route in place of gRPC."""


def seqserve_server(artifact: Path, folder: Path) -> Server:
    """Returns our server of one artifact, which is copied into a repository in ``folder``."""
    manifest = Manifest.read(artifact)
    repository = folder / "models"
    # A link would do for the disk, but a server loads nothing from outside its repository.
    shutil.copytree(artifact, repository / manifest.name / str(manifest.version))
    ports = ["--port", "0", "--metrics-port", "0"]
    # The other servers refuse no calls, and here one caller makes all of them.
    patience = ["--max-queue-s", "60", "--caller-share", "1"]
    arguments = ["serve", "--model-repository", str(repository), *ports, *patience]
    return Server(f"seqserve {manifest.precision}", "seqserve", arguments)


def batch_server(name: str, *arguments: object, delay_ms: float) -> Server:
    """Returns a batch server on another engine; see :mod:`bench.drivers.batch_server`."""
    options = ["--delay-ms", str(delay_ms), *map(str, arguments)]
    return Server(name, "bench.drivers.batch_server", options)


def libretranslate_server(packages: Path, beam_size: int = 1) -> Server:
    """Returns LibreTranslate with packages of :func:`~bench.drivers.libretranslate.packages_of`."""
    python, variables = str(libretranslate.INTERPRETER), {"ARGOS_BEAM_SIZE": str(beam_size)}
    arguments = ["libretranslate", str(packages), _eos_id(packages), _free_port()]
    module = "bench.drivers.libretranslate"
    return Server("LibreTranslate", module, arguments, python, variables, is_http=True)


def plain_server(packages: Path, beam_size: int = 1) -> Server:
    """Returns the plainest server of FastAPI and CTranslate2, with the same packages."""
    python = str(libretranslate.INTERPRETER)
    sizes = [str(available_cores()), str(beam_size)]
    folder = str(packages / libretranslate.PACKAGE)
    arguments = ["plain", folder, _eos_id(packages), _free_port(), *sizes]
    module = "bench.drivers.libretranslate"
    return Server("FastAPI + CTranslate2", module, arguments, python, is_http=True)


def _eos_id(packages: Path) -> str:
    return str(Tokenizer.load(packages / libretranslate.PACKAGE / "tokenizer.json").eos_id)


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


class ServerProcess(Closing):
    """A server that prints ``ready on <address>`` once it serves; stopped on exit.

    Its costs include its children's: ours has a child for each engine.

    Attributes:
        address: Host and port.
        ready_after_s: From the start of the process until it printed so.
    """

    def __init__(self, server: Server, log: Path) -> None:
        variables = os.environ.items()
        environment = {name: value for name, value in variables if not name.startswith("SEQSERVE_")}
        began_s = time.perf_counter()
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [server.interpreter, "-m", server.module, *server.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment | dict(server.variables),
                text=True,
            )
        assert self._process.stdout is not None
        # Others may say something before.
        lines = iter(self._process.stdout.readline, "")
        ready = next(filter(None, map(_READY.match, lines)), None)
        self.ready_after_s = time.perf_counter() - began_s
        if ready is None:
            self.close()
            output = log.read_text(encoding="utf-8", errors="replace")
            command = " ".join([server.module, *server.arguments])
            raise SystemExit(f"{command} did not start:\n{output}")
        self.address, self._metrics_url = ready[1], ready[2]

    def close(self) -> None:
        """Asks it to end, and kills it if it does not."""
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def cpu_s(self) -> float:
        """Reads the CPU seconds of all threads of all its processes."""
        return sum(_cpu_s(Path(f"/proc/{pid}/stat")) for pid in self._pids())

    def front_cpu_s(self) -> list[float]:
        """Reads the CPU seconds of its first process, and of each further front of ours."""
        first, *others = self._pids()
        fronts = [first, *(pid for pid in others if _FRONT in _command(pid))]
        return [_cpu_s(Path(f"/proc/{pid}/stat")) for pid in fronts]

    def resident_bytes(self) -> int:
        """Reads how much memory of all its processes is in RAM, each page counted once."""
        return sum(map(proportional_bytes, self._pids()))

    def counter(self, name: str) -> float:
        """Sums a metric over its labels, in a scrape of now."""
        with _DIRECT.open(self._metrics_url, timeout=_PATIENCE_S) as answer:
            text = answer.read().decode()
        samples = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]
        assert samples, f"{name} is not among the metrics"
        return sum(samples)

    def _pids(self) -> list[int]:
        tasks = Path(f"/proc/{self._process.pid}/task")
        lists = [file.read_text(encoding="utf-8") for file in tasks.glob("*/children")]
        return [self._process.pid, *(int(pid) for pids in lists for pid in pids.split())]


def _command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")


def _cpu_s(stat: Path) -> float:
    """Adds up seconds in user and in system mode.

    Source: Linux, proc_pid_stat(5), fields 14 (utime) and 15 (stime).
    """
    # The name, field 2, is in brackets and may hold anything.
    fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def proportional_bytes(pid: int) -> int:
    """Reads the proportional set size: a page that three processes map is a third of one in each.

    Processes share their libraries, and sums of resident sizes would count those again and again.
    Pages that other processes map as well, such as this one, count only in part.

    Source: Linux, proc_pid_smaps(5), ``Pss``.
    """
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    pss = re.search(r"^Pss:\s+(\d+) kB$", rollup, re.MULTILINE)
    assert pss, "the process has ended"
    return int(pss[1]) * 1024
