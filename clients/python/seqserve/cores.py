"""The CPU cores that this process may use: its affinity and the limit of its container."""

from __future__ import annotations

import os
from pathlib import Path

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
    """Reads the CPU limit of the container, in cores; None without a limit."""
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
