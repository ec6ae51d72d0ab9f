"""A server as a process of its own, and what the system knows of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from prometheus_client.parser import text_string_to_metric_families

_READY = re.compile(r".*ready on ([^\s,]+)(?:, metrics ([^\s,]+))?")
# Within it calls under way may end.
_PATIENCE_S = 30.0
# A proxy does not know the way to this machine.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerProcess:
    """A Python module that says ``ready on <address>`` once it serves; ended on leaving.

    Attributes:
        address: Host and port.
        ready_after_s: From the start of the process until it said so.
    """

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        """Starts ``python -m module`` and waits until it is ready.

        Args:
            module: Its name.
            arguments: Of its command line.
            log: File for what it writes to standard error.
        """
        variables = os.environ.items()
        environment = {name: value for name, value in variables if not name.startswith("SEQSERVE_")}
        began_s = time.perf_counter()
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                text=True,
            )
        assert self._process.stdout is not None
        found = _READY.match(self._process.stdout.readline())
        self.ready_after_s = time.perf_counter() - began_s
        if found is None:
            self.close()
            said = log.read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"{module} {' '.join(arguments)} did not start:\n{said}")
        self.address, self._metrics_url = found[1], found[2]

    def __enter__(self) -> ServerProcess:
        """Gives itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends it."""
        self.close()

    def close(self) -> None:
        """Asks it to end, and makes it where it does not."""
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def cpu_s(self) -> float:
        """Reads the CPU seconds of all its threads."""
        return _cpu_s(self._read("stat"))

    def main_thread_cpu_s(self) -> float:
        """Reads the CPU seconds of its first thread, which is where the event loop of ours runs."""
        return _cpu_s(self._read(f"task/{self._process.pid}/stat"))

    def resident_bytes(self) -> int:
        """Reads how much of its memory is in RAM (VmRSS of proc_pid_status(5))."""
        found = re.search(r"^VmRSS:\s+(\d+) kB$", self._read("status"), re.MULTILINE)
        assert found, "the process has ended"
        return int(found[1]) * 1024

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

    def _read(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text(encoding="utf-8")


def _cpu_s(stat: str) -> float:
    """Adds up seconds in user and in system mode.

    Source: Linux, proc_pid_stat(5), fields 14 (utime) and 15 (stime).
    """
    # The name, field 2, stands in brackets and may hold anything.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
