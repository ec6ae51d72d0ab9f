"""Processes of a command: their cores, their shares, and how they leave Ctrl-C to the command.

Ctrl-C in a terminal goes to all processes of a command. One that has only begun would end with a
traceback, because it imports what it needs before it can say that it does not want it.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_ROOT = Path("/")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HAS_MASKS = hasattr(signal, "pthread_sigmask")  # not on Windows


@dataclass(frozen=True, slots=True)
class Share:
    """One of several processes that do something together."""

    index: int = 0
    processes: int = 1

    def of(self, count: int) -> int:
        """Returns its part of a number; the first processes have one more if there is a rest."""
        return count // self.processes + (self.index < count % self.processes)


def available_cores(root: Path = _ROOT) -> int:
    """Counts the cores; at least 1. Every control group around this process may limit them.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst ("cpu.max"), and
    Documentation/scheduler/sched-bwc.rst for version 1; cgroups(7) for /proc/self/cgroup.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([cores, *(int(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    mounted = root / "sys/fs/cgroup"
    try:
        lines = _read(root / "proc/self/cgroup").splitlines()
    except OSError:
        lines = []
    # Lines are `number:controllers:path`; a path may begin above what this process sees.
    for line in [*lines, "0:cpu:/", "0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        level = mounted / "cpu" if controllers else mounted
        for part in ["", *path.strip("/").split("/")]:
            level = level / part
            with suppress(OSError, ValueError):
                yield _quota(level)


def _quota(level: Path) -> float:
    # No number means no limit.
    try:
        limit, period = _read(level / "cpu.max").split()
    except FileNotFoundError:
        limit, period = _read(level / "cpu.cfs_quota_us"), _read(level / "cpu.cfs_period_us")
    if int(limit) <= 0 or int(period) <= 0:
        raise ValueError
    return int(limit) / int(period)


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()


def spawn(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Starts a process that runs a function; it calls :func:`leave_interrupts`, and gets none until
    it does."""
    # Not a fork: it would lose the threads of this process and of its libraries.
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=target, args=arguments, daemon=True)
    if _HAS_MASKS:
        from multiprocessing.resource_tracker import ensure_running

        # It lets interrupts through when it begins, which would be in `start` otherwise.
        ensure_running()
    with signals_held():
        process.start()
    return process


@contextmanager
def signals_held() -> Iterator[None]:
    """Keeps Ctrl-C and SIGTERM from processes that start in the block, until they call
    :func:`leave_interrupts`."""
    if not _HAS_MASKS:
        yield
        return
    # A process begins with the mask of the thread that starts it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_interrupts(*others: signal.Signals) -> None:
    """Ignores interrupts, and other signals: the process that has started this one ends it."""
    for each in (signal.SIGINT, *others):
        signal.signal(each, signal.SIG_IGN)
    if _HAS_MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
