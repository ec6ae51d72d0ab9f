"""Reads the memory and the CPU time of a process from ``/proc``, on systems that have it."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client import ProcessCollector


class ProcessUsage(NamedTuple):
    """What a process uses."""

    resident_bytes: float
    """Physical memory."""
    cpu_s: float
    """User and system time since it started, in seconds."""


def usage_of(pid: int | None) -> ProcessUsage | None:
    """Reads the usage of a process; None if it has ended, or the system has no ``/proc``."""
    if pid is None:
        return None
    families = ProcessCollector(pid=lambda: pid, registry=None).collect()
    values = {family.name: family.samples[0].value for family in families}
    try:
        return ProcessUsage(values["process_resident_memory_bytes"], values["process_cpu_seconds"])
    except KeyError:
        return None
