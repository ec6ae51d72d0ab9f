"""Tells glibc what to do with freed memory: keep it for the next step, or give it back.

Each step of a training allocates and frees the same hundreds of megabytes. glibc returns large
blocks at once, and the kernel zeroes every new one page by page: a sixth of the time of a step on a
CPU. Where one stage of an export follows another, it keeps hundreds of megabytes in small blocks.
"""

from __future__ import annotations

import ctypes
import gc
import sys

from seqserve_server.process.memory_trim import malloc_trim

# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_STEP_BYTES = 1 << 29


def keep_freed_memory() -> bool:
    """Asks glibc to keep freed memory; returns False where there is no glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    wishes = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, _STEP_BYTES))
    return all([mallopt(name, value) == 1 for name, value in wishes])


def trim_memory() -> None:
    """Frees what only reference cycles keep, and asks glibc to return all that is freed.

    The second does nothing where there is no glibc.
    """
    gc.collect()
    trim = malloc_trim()
    if trim is not None:
        trim(0)
