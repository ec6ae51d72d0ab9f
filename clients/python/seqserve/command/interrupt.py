"""Ctrl-C: ends a command quietly at any moment, and within seconds even if its clean-up is blocked.

Python raises :exc:`KeyboardInterrupt` between any two steps of the main thread, even between taking
a lock and the block that releases it. Then another thread, or the clean-up, waits for that lock for
ever (see "Note on Signal Handlers and Exceptions" in the documentation of :mod:`signal`).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import FrameType
else:
    # All of `signal` but its enums: until these were loaded, Ctrl-C would show a traceback.
    import _signal as signal

GRACE_S = 5.0
"""Time for a command to end by itself."""
STATUS = 130
"""Exit status of an interrupted process, by the convention of shells: 128 and the signal."""
READER_GONE = 141
"""Exit status if the reader of the output has gone away: 128 and SIGPIPE."""

last_word: Callable[[], str] = str
"""Returns what an interrupted command says on standard error, however it ends."""

_has_come = False


def has_come() -> bool:
    """Tells whether the command was interrupted."""
    return _has_come


def end_at_once() -> None:
    """Ends the process at an interrupt; for when nothing needs to be cleaned up."""
    # Background processes ignore interrupts, some commands handle them.
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _interrupt):
        signal.signal(signal.SIGINT, _end)


def clean_up_first() -> None:
    """Raises KeyboardInterrupt at an interrupt; limits the time that the process then takes to end.

    Does nothing unless :func:`end_at_once` has been called.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        sys.unraisablehook = _end_if_interrupted
        signal.signal(signal.SIGINT, _interrupt)


def end_with(status: int) -> None:
    """Ends the process with an exit status; that of an interrupt if one has come."""
    end_at_once()
    if _has_come:
        # A library that swallows it must not hide it, nor the timer outlive its handler.
        status = STATUS
    if status in (STATUS, READER_GONE):
        # Calls may be under way. The end of the interpreter stops gRPC's threads where they are,
        # perhaps with the lock that a call needs when it is deleted.
        try:
            sys.stdout.flush()
        finally:
            _exit(status)
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _has_come
    _has_come = True
    # A second one does not wait.
    signal.signal(signal.SIGINT, _end)
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.signal(signal.SIGALRM, _end)
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
    signal.default_int_handler(number, frame)


def _end(number: int, frame: FrameType | None) -> None:
    _exit(STATUS)


def _end_if_interrupted(failure: sys.UnraisableHookArgs) -> None:
    # Raised where Python cannot pass it on, as in a destructor, it would be reported and lost.
    if failure.exc_type is KeyboardInterrupt:
        _exit(STATUS)
    sys.__unraisablehook__(failure)


def _exit(status: int) -> None:
    try:
        if status == STATUS:
            # Not by sys.stderr, which the interrupt may have stopped in the midst of a line.
            os.write(2, last_word().encode())
    finally:
        os._exit(status)
