"""What Ctrl-C does to a command: it ends, even where it cannot end well.

Python raises :exc:`KeyboardInterrupt` between any two steps of the main thread, also between taking
a lock and the block that gives it back. Whoever needs that lock then, another thread or the
clean-up, waits for ever ("Note on Signal Handlers and Exceptions" in the documentation of
:mod:`signal`). So a command has some seconds to end by itself.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

GRACE_S = 5.0
STATUS = 130
"""The exit status of a process that was interrupted, as shells have it: 128 and the signal."""


def prepare() -> None:
    """Gives the process's interrupts a limit; a command that handles them itself knows better."""
    # In the background they are ignored; Windows has no such timer.
    is_plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_plain and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _end)
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, GRACE_S)
    signal.default_int_handler(number, frame)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(STATUS)
