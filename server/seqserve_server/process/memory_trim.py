"""Returns freed memory to the operating system with ``malloc_trim``.

glibc keeps freed memory that lies between blocks in use, in an arena for each thread. After
thousands of connections, or large answers, it would hold most of their memory, and more each time.
Source: malloc_trim(3); other C libraries lack it or do not need it.
"""

import ctypes
import sys
from collections.abc import Callable

TRIM_INTERVAL_S = 5.0
"""Time between two trims; each takes some milliseconds at most."""


def malloc_trim() -> Callable[[int], int] | None:
    """Finds the function, which releases the interpreter lock while it runs; None without it."""
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
