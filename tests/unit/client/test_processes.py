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


def v1(folder: str, quota: str = "300000") -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("files", "member", "cores"),
    [
        ({}, "", 8),
        ({}, "0::/\n", 8),
        ({"cpu.max": "max 100000\n"}, "0::/\n", 8),
        ({"cpu.max": "200000 100000\n"}, "", 2),
        ({"cpu.max": "250000 100000\n"}, "", 2),
        ({"cpu.max": "50000 100000\n"}, "", 1),
        ({"cpu.max": "1600000 100000\n"}, "", 8),
        ({"cpu.max": "nonsense\n"}, "", 8),
        ({"cpu.max": "100000 0\n"}, "", 8),
        (v1("cpu", "-1"), "", 8),
        (v1("cpu"), "", 3),
        # As systemd and Slurm set limits: on the groups around that of the process, too.
        ({"a.slice/cpu.max": "300000 100000"}, "0::/a.slice/b.service\n", 3),
        ({"a.slice/b.service/cpu.max": "300000 100000"}, "0::/a.slice/b.service\n", 3),
        (
            {"cpu.max": "500000 100000", "a/cpu.max": "400000 100000", "a/b/cpu.max": "max 100000"},
            "0::/a/b\n",
            4,
        ),
        ({"a/cpu.max": "100000 100000"}, "0::/b\n", 8),
        ({"cpu.max": "400000 100000"}, "0::/../../a\n", 4),
        (v1("cpu/job_7"), "12:memory:/job_7\n3:cpu,cpuacct:/job_7/step_0\n0::/\n", 3),
        (v1("cpu/job_7"), "12:cpuset:/job_7\n", 8),
        # Both versions side by side.
        ({**v1("cpu/a"), "cpu.max": "200000 100000"}, "3:cpu:/a\n0::/\n", 2),
    ],
)
def test_the_least_of_affinity_and_all_quotas(
    tmp_path: Path, files: dict[str, str], member: str, cores: int
) -> None:
    for name, content in {f"sys/fs/cgroup/{name}": text for name, text in files.items()}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "proc/self").mkdir(parents=True)
    if member:
        (tmp_path / "proc/self/cgroup").write_text(member)
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
