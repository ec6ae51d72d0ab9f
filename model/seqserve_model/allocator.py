"""Keeps memory that a training step frees for the next step.

Each step allocates and frees the same hundreds of megabytes. glibc returns large blocks at once,
and the kernel zeroes every new one page by page: a sixth of the time of a step on a CPU.
"""

from __future__ import annotations

import ctypes
import sys

# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_STEP_BYTES = 1 << 29


def keep_freed_memory() -> bool:
    """Asks glibc to keep freed memory; returns False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wishes = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, _STEP_BYTES))
    return all([mallopt(name, value) == 1 for name, value in wishes])
