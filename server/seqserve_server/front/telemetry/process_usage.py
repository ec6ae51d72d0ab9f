"""Reads the memory and the CPU time of processes from ``/proc``, on systems that have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from prometheus_client import ProcessCollector


class ProcessUsage(NamedTuple):
    """What some processes use together."""

    resident_bytes: float
    """Physical memory."""
    cpu_s: float
    """User and system time since they started, in seconds."""


def usage_of(pids: Iterable[int]) -> ProcessUsage | None:
    """Adds up the usage of processes; None if all have ended, or the system has no ``/proc``."""
    found = [usage for pid in pids if (usage := _usage(pid))]
    if not found:
        return None
    resident_bytes, cpu_s = zip(*found, strict=True)
    return ProcessUsage(sum(resident_bytes), sum(cpu_s))


def _usage(pid: int) -> ProcessUsage | None:
    families = ProcessCollector(pid=lambda: pid, registry=None).collect()
    values = {family.name: family.samples[0].value for family in families}
    try:
        return ProcessUsage(values["process_resident_memory_bytes"], values["process_cpu_seconds"])
    except KeyError:
        return None
