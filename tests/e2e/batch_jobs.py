"""Jobs that translate files with ``seqserve generate``, and single calls beside them."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.requests import everyday

from seqserve import Client

from .process import PATIENCE_S


def lines(count: int, seed: int = 0) -> list[str]:
    """Draws everyday sentences."""
    return random.Random(seed).choices(everyday(), k=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One run of the command over a file."""

    source: Path
    target: Path
    errors: Path
    process: subprocess.Popen[bytes]

    def ended(self, timeout_s: float = 10 * PATIENCE_S) -> BatchJob:
        """Waits for its end."""
        self.process.wait(timeout_s)
        return self

    def assert_complete(self) -> None:
        """Checks that every line has its answer and nothing was reported."""
        assert self.process.returncode == 0, self.errors.read_text()
        answers = self.target.read_text().splitlines()
        blank = [number for number, line in enumerate(answers, start=1) if not line]
        assert not blank, f"lines {blank} are lost: {self.errors.read_text()}"
        assert len(answers) == len(self.source.read_text().splitlines())


@contextmanager
def batch_jobs(
    target: str, folder: Path, count: int, *options: str, num_lines: int
) -> Iterator[list[BatchJob]]:
    """Runs jobs side by side; each second one takes its file by ``--file``.

    Args:
        target: The server.
        folder: Where their files are.
        count: Number of jobs.
        options: Of the command.
        num_lines: Lines of each file.
    """
    started: list[BatchJob] = []
    with ExitStack() as stack:
        for number in range(count):
            name = folder / f"job-{number}"
            source = name.with_suffix(".source")
            source.write_text("\n".join(lines(num_lines, number)) + "\n")
            standard_input = stack.enter_context(source.open("rb"))
            given = ("--file", str(source)) if number % 2 else ()
            job = BatchJob(
                source=source,
                target=name.with_suffix(".target"),
                errors=name.with_suffix(".errors"),
                process=subprocess.Popen(
                    [
                        *(sys.executable, "-m", "seqserve", "generate"),
                        *("--target", target, *options, *given),
                    ],
                    stdin=standard_input,
                    stdout=stack.enter_context(name.with_suffix(".target").open("wb")),
                    stderr=stack.enter_context(name.with_suffix(".errors").open("wb")),
                ),
            )
            stack.callback(job.process.kill)
            started.append(job)
        yield started


@dataclass(slots=True)
class SingleCalls:
    """Greedy calls of one client, one at a time, with pauses; times in seconds."""

    client: Client
    durations_s: list[float] = field(default_factory=list)

    def run(self, until: threading.Event, pause_s: float = 0.05) -> None:
        """Calls until the event is set; raises the error of a call that failed."""
        for line in lines(100_000, 99):
            began_s = time.perf_counter()
            self.client.generate(line)
            self.durations_s.append(time.perf_counter() - began_s)
            if until.wait(pause_s):
                return

    def __str__(self) -> str:
        ordered = sorted(self.durations_s)
        slowest = ordered[int(0.99 * len(ordered))]
        middle = statistics.median(ordered)
        return f"{len(ordered)} calls, p50 {middle * 1e3:.0f} ms, p99 {slowest * 1e3:.0f} ms"
