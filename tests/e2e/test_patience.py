"""Jobs of many lines, while the server is busy or away: every line has its one answer."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.job import Job
from tests.support.process import PATIENCE_S, ServerProcess, until
from tests.support.sockets import port_held

from seqserve import Client

LINES = 300
SHORT = ("--max-decoding-length", "100")
OUTAGE_S = 4.0
"""Longer than any fixed number of attempts with short delays would last."""


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line number {number}\n" for number in range(LINES)))
    return file


@pytest.fixture
def port() -> Iterator[int]:
    with port_held() as port:
        yield port


def test_a_job_outlives_a_restart_of_the_server(
    repository: Path, tmp_path: Path, lines: Path, port: int
) -> None:
    def serve(name: str) -> ServerProcess:
        folder = tmp_path / name
        folder.mkdir()
        return ServerProcess(repository, folder, "--port", str(port))

    def job(name: str, lines: Path) -> Job:
        return Job(f"127.0.0.1:{port}", tmp_path / name, *SHORT, "--file", str(lines))

    # As long as it is open, the job that reads it is not done.
    os.mkfifo(tmp_path / "fed")
    fed = (tmp_path / "fed").open("r+b", buffering=0)
    begin, end = lines.read_bytes()[:2000], lines.read_bytes()[2000:]
    with serve("first"):
        undisturbed = job("undisturbed", lines)
        assert undisturbed.wait() == 0
        expected = undisturbed.answers
        assert len(expected) == LINES and "" not in expected and len(set(expected)) > LINES // 2
        disturbed = job("disturbed", tmp_path / "fed")
        fed.write(begin)
        until(lambda: len(disturbed.answers) > LINES // 10)
    until(lambda: any("is not available" in report for report in disturbed.reports))
    time.sleep(OUTAGE_S)
    assert disturbed.runs()
    with fed:
        fed.write(end)
    with serve("second"):
        assert disturbed.wait() == 0
    assert disturbed.answers == expected
    # This model has not learnt anything; the faults of its answers are reported too.
    lost, back = (each for each in disturbed.reports if not each.startswith("seqserve: line"))
    assert lost.startswith(f"seqserve: 127.0.0.1:{port} is not available, waiting for it: ")
    assert back == f"seqserve: 127.0.0.1:{port} is available again"


def test_callers_side_by_side_on_busy_server(repository: Path, tmp_path: Path, lines: Path) -> None:
    sources = lines.read_text().splitlines()

    def answers(target: str) -> list[str]:
        with Client(target, timeout_s=2 * PATIENCE_S) as client:
            many = client.generate_many(sources, max_decoding_length=100)
            return [result.text for result in many]

    narrow = ("--slots", "4", "--workers", "1", "--max-queue", "8")
    with ServerProcess(repository, tmp_path, *narrow) as server, ThreadPoolExecutor(2) as threads:
        one, other = threads.map(answers, [server.target] * 2)
        assert one == other and len(one) == LINES and "" not in one
        assert server.value("rejected_total") > 0, "the server was not busy"
