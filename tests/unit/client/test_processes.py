from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from seqserve.processes import available_cores, leave_interrupts, spawn


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "1600000 100000\n"}, 8),
        ({"cpu.max": "nonsense\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ],
)
def test_the_least_of_affinity_and_quota(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert available_cores(tmp_path) == cores


def _tell(pipe: Connection) -> None:
    leave_interrupts()
    pipe.send("it lives")
    pipe.recv()


def test_process_that_begins_leaves_interrupts_to_the_command() -> None:
    here, there = multiprocessing.Pipe()
    process = spawn(_tell, there)
    there.close()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    assert here.recv() == "it lives"
    os.kill(process.pid, signal.SIGINT)
    here.send(None)
    process.join()
    assert process.exitcode == 0
    # This process gets its own.
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
