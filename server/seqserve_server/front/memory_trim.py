"""Returns freed memory to the operating system with ``malloc_trim``.

glibc keeps freed memory that lies between blocks in use, in an arena for each thread. After
thousands of connections it would hold most of their memory, and more each time.
Source: malloc_trim(3); other C libraries lack it or do not need it.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import Callable

_INTERVAL_S = 10.0


async def trim_memory(interval_s: float = _INTERVAL_S) -> None:
    """Trims the heap at an interval, in a thread, until it is cancelled."""
    trim = _malloc_trim()
    while trim is not None:
        await asyncio.sleep(interval_s)
        await asyncio.to_thread(trim, 0)


def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
