"""A server that is merely busy loses nothing: jobs that translate files, threads, single calls.

How much slower single calls are beside the jobs depends on the machine, whose cores the jobs share;
the test prints it and asserts only that nothing is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.process import MODELS, ServerProcess, until

from seqserve import Client

from .batch_jobs import SingleCalls, batch_jobs, lines

LINES = 3000
"""Over all jobs."""

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with nothing but defaults."""
    options = ("--default-model", "en-de", "--log-level", "warning")
    with ServerProcess(MODELS, tmp_path_factory.mktemp("busy"), *options) as server:
        yield server
        until(server.is_idle)
        assert "Traceback" not in server.stderr


def alone(client: Client, seconds: float = 2.0) -> SingleCalls:
    """Calls while nothing else does."""
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
    over = threading.Event()
    with Client(busy.target) as client:
        unloaded, calls = alone(client), SingleCalls(client)
        with (
            batch_jobs(busy.target, tmp_path, count, *options, num_lines=LINES // count) as running,
            ThreadPoolExecutor(1) as threads,
        ):
            single = threads.submit(calls.run, over)
            for job in running:
                job.ended()
            over.set()
            single.result()
            for job in running:
                job.assert_complete()
    print(f"{count} jobs {' '.join(options)}: alone {unloaded}; beside them {calls}")


def test_threads_that_wait_for_each_answer_lose_none(busy: ServerProcess) -> None:
    with Client(busy.target) as client, ThreadPoolExecutor(40) as threads:
        sources = lines(400)
        results = list(threads.map(lambda line: client.generate(line, beam_size=5), sources))
    assert all(result.text for result in results)
