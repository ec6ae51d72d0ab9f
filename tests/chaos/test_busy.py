"""A server that is merely busy loses nothing: jobs that translate files, threads, single calls.

How much slower single calls are beside the jobs depends on the machine, whose cores the jobs share;
the test prints it and asserts only that nothing is lost.
"""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.requests import everyday
from tests.support.flood import quantile
from tests.support.job import Job
from tests.support.process import MODELS, ServerProcess, until

from seqserve import Client

LINES = 3000
"""Over all jobs."""

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with nothing but defaults."""
    options = ("--default-model", "en-de", "--log-level", "warning")
    with ServerProcess(MODELS, tmp_path_factory.mktemp("busy"), *options).unharmed() as server:
        yield server
        until(server.is_idle)


def lines(count: int, seed: int = 0) -> list[str]:
    return random.Random(seed).choices(everyday(), k=count)


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
        middle, slowest = (1e3 * quantile(self.durations_s, share) for share in (0.5, 0.99))
        return f"{len(self.durations_s)} calls, p50 {middle:.0f} ms, p99 {slowest:.0f} ms"


def alone(client: Client, seconds: float = 2.0) -> SingleCalls:
    calls, over = SingleCalls(client), threading.Event()
    timer = threading.Timer(seconds, over.set)
    timer.start()
    calls.run(over)
    return calls


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("options", [(), ("--beam-size", "5")], ids=["plain", "beam"])
def test_jobs_lose_no_line_and_bar_no_single_call(
    busy: ServerProcess, tmp_path: Path, count: int, options: tuple[str, ...]
) -> None:
    over, jobs = threading.Event(), []
    with Client(busy.target) as client, ThreadPoolExecutor(1) as threads:
        unloaded, calls = alone(client), SingleCalls(client)
        for number in range(count):
            source = tmp_path / f"{number}.txt"
            source.write_text("\n".join(lines(LINES // count, number)) + "\n")
            folder, by_file = tmp_path / f"job-{number}", number % 2
            given = ("--file", str(source)) if by_file else ()
            jobs.append(
                Job(busy.target, folder, *options, *given, lines=None if by_file else source)
            )
        single = threads.submit(calls.run, over)
        ends = [job.wait() for job in jobs]
        over.set()
        single.result()
    for job, end in zip(jobs, ends, strict=True):
        assert end == 0, job.reports
        assert len(job.answers) == LINES // count and "" not in job.answers, job.reports
    print(f"{count} jobs {' '.join(options)}: alone {unloaded}; beside them {calls}")


def test_threads_that_wait_for_each_answer_lose_none(busy: ServerProcess) -> None:
    with Client(busy.target) as client, ThreadPoolExecutor(40) as threads:
        sources = lines(400)
        results = list(threads.map(lambda line: client.generate(line, beam_size=5), sources))
    assert all(result.text for result in results)
