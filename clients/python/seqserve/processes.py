"""Processes of a command: the cores that they may use, and how they leave Ctrl-C to it.

Ctrl-C in a terminal goes to all processes of a command. One that has only begun would end with a
traceback, because it imports what it needs before it can say that it does not want it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_CGROUP = Path("/sys/fs/cgroup")


def available_cores(cgroup: Path = _CGROUP) -> int:
    """Counts the cores; at least 1.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst ("cpu.max"), and
    Documentation/scheduler/sched-bwc.rst for version 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, cores if quota is None else min(cores, int(quota)))


def _quota(cgroup: Path) -> float | None:
    try:
        limit, period = _read(cgroup / "cpu.max").split()
    except (OSError, ValueError):
        try:
            limit = _read(cgroup / "cpu" / "cpu.cfs_quota_us")
            period = _read(cgroup / "cpu" / "cpu.cfs_period_us")
        except OSError:
            return None
    if not limit.isdigit() or not period.isdigit() or period == "0":  # "max", or -1
        return None
    return int(limit) / int(period)


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()


def spawn(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Starts a process that runs a function; it calls :func:`leave_interrupts`, and gets none until
    it does."""
    # Not a fork: it would lose the threads of this process and of its libraries.
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=target, args=arguments, daemon=True)
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        process.start()
        return process
    from multiprocessing.resource_tracker import ensure_running

    # It lets interrupts through when it begins, which would be in `start` otherwise.
    ensure_running()
    # A process begins with the mask of the thread that starts it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def leave_interrupts() -> None:
    """Ignores interrupts: the process that has started this one ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
