"""Threads, open files, tasks and memory of this process and of a server's, to find leaks."""

from __future__ import annotations

import asyncio
import os
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.process import PATIENCE_S, ServerProcess

TOLERANCE_MB = 12.0
"""Allowed growth: some pages, a thread's arena, a longer list."""
_TOLERANCE_THREADS = 8
"""Allowed growth of the thread pools of gRPC and of the event loop."""


def memory_mb(server: ServerProcess) -> float:
    return anonymous_mb(server.pid, *server.engines())


def anonymous_mb(*pids: int) -> float:
    """Sums the anonymous memory of processes (proc_pid_smaps(5)).

    What they share, libraries and weights, is not theirs, and its share rises and falls with the
    other processes of the machine.
    """
    rollups = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids)
    return sum(int(rollup.partition("\nAnonymous:")[2].split()[0]) for rollup in rollups) / 1024


def cpu_s(pid: int) -> float:
    """Reads the CPU time of a process: proc_pid_stat(5), fields 14 (utime) and 15 (stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def growth_mb(samples: Sequence[float]) -> float:
    """Returns how much memory grew from the second fifth of the time to the last one."""
    fifth = len(samples) // 5
    return statistics.median(samples[-fifth:]) - statistics.median(samples[fifth : 2 * fifth])


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of all processes of a server together."""

    threads: int
    files: int
    megabytes: float

    @classmethod
    def of(cls, server: ServerProcess) -> Resources:
        pids = (server.pid, *server.engines())
        threads, files = (
            sum(len(os.listdir(f"/proc/{pid}/{kind}")) for pid in pids) for kind in ("task", "fd")
        )
        return cls(threads, files, memory_mb(server))

    def is_no_more_than(self, before: Resources) -> bool:
        return (
            self.threads <= before.threads + _TOLERANCE_THREADS
            and self.files <= before.files
            and self.megabytes <= before.megabytes + TOLERANCE_MB
        )

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.files} files, {self.megabytes:.1f} MB"


def until_released(server: ServerProcess, before: Resources) -> Resources:
    """Waits until a server is idle and has no more than before; returns its resources."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        now, is_idle = Resources.of(server), server.is_idle()
        if is_idle and now.is_no_more_than(before):
            return now
        assert time.monotonic() < deadline_s, f"before {before}, now {now}, idle: {is_idle}"
        time.sleep(0.05)


def own_resources() -> tuple[int, int, int]:
    """Counts threads, open files and tasks of this process; called in the event loop.

    Threads of the loop's own pool are left out: it begins one (``asyncio_1``) whenever it finds
    none idle, up to its limit, and keeps it.
    """
    threads = [each for each in threading.enumerate() if not each.name.startswith("asyncio_")]
    return len(threads), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
