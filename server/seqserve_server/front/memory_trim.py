"""CrossKV that was freed goes back to the system.

glibc keeps what lies between pieces that are still in use, for each thread apart. After thousands
of connections have gone it would hold most of what they took, and more each time.
Source: malloc_trim(3), which other C libraries lack or do not need.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import Callable

_INTERVAL_S = 10.0


async def give_back_freed(interval_s: float = _INTERVAL_S) -> None:
    """Gives back what there is, now and then, until it is cancelled; calls go on meanwhile."""
    trim = _trim()
    while trim is not None:
        await asyncio.sleep(interval_s)
        await asyncio.to_thread(trim, 0)


def _trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
