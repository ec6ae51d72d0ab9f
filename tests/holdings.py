"""Threads, open files and tasks of this process, to find leaks."""

from __future__ import annotations

import asyncio
import os
import threading


def holdings() -> tuple[int, int, int]:
    """Counts threads, open files and tasks; called in the event loop.

    Threads of the loop's own pool are left out: it begins one (``asyncio_1``) whenever it finds
    none idle, up to its limit, and keeps it.
    """
    threads = [each for each in threading.enumerate() if not each.name.startswith("asyncio_")]
    return len(threads), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
