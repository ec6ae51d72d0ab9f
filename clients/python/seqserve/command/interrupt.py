"""Ctrl-C: ends a command within seconds, even if its clean-up is blocked.

Python raises :exc:`KeyboardInterrupt` between any two steps of the main thread, even between taking
a lock and the block that releases it. Then another thread, or the clean-up, waits for that lock for
ever (see "Note on Signal Handlers and Exceptions" in the documentation of :mod:`signal`).
"""

from __future__ import annotations

import os
import signal
from types import FrameType

GRACE_S = 5.0
"""Time for a command to end by itself."""
STATUS = 130
"""Exit status of an interrupted process, by the convention of shells: 128 and the signal."""


def prepare() -> None:
    """Limits the time that the process takes to end after an interrupt."""
    # Background processes ignore interrupts, some commands handle them; Windows has no such timer.
    is_plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_plain and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _end)
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, GRACE_S)
    signal.default_int_handler(number, frame)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(STATUS)
