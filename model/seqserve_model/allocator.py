"""CrossKV that a training frees is kept for its next step instead of given back to the system.

Each step frees and takes the same hundreds of megabytes. glibc gives large blocks back at once, and
every new one is filled with zeros page by page: a sixth of the time of a step on a CPU.
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
    """Asks glibc to keep freed memory; tells whether it could be asked (only Linux has glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wishes = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, _STEP_BYTES))
    return all([mallopt(name, value) == 1 for name, value in wishes])
