"""What this process holds: threads, open files and tasks, which a leak would increase."""

from __future__ import annotations

import asyncio
import os
import threading


def holdings() -> tuple[int, int, int]:
    """Counts threads, open files and tasks, from within an event loop.

    Threads of the loop's own pool (``asyncio_1``) are left out: it starts them as it needs them, up
    to its limit, and keeps them.
    """
    threads = [each for each in threading.enumerate() if not each.name.startswith("asyncio_")]
    return len(threads), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
