"""The process of a command: its interrupts, its standard streams, its exit status.

Exit status: 0 success, 1 an error of :mod:`seqserve.errors` or an output that cannot be written, 2
wrong usage, 130 an interrupt, 141 the reader of the output has gone away.

Ctrl-C ends a command quietly at any moment, and within seconds even if its clean-up is blocked.
Python raises :exc:`KeyboardInterrupt` between any two steps of the main thread, even between taking
a lock and the block that releases it. Then another thread, or the clean-up, waits for that lock for
ever (see "Note on Signal Handlers and Exceptions" in the documentation of :mod:`signal`).

A broken standard stream ends in an exit status, not in a traceback. Standard output carries the
answer, so a command that cannot write it has failed; an error on standard error is ignored.
"""

from __future__ import annotations

import atexit
import io
import os
import sys

from seqserve.command.advice import advice_on
from seqserve.errors import NotWritten, OptionError, SeqserveError

# As in typing, which takes a moment to import, in which Ctrl-C would show a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import FrameType
    from typing import Any
else:
    # All of `signal` but its enums, for the same reason.
    import _signal as signal

GRACE_S = 5.0
"""Time for an interrupted command to end by itself."""
# By the convention of shells, 128 and the number of SIGINT and of SIGPIPE.
_INTERRUPTED, _READER_GONE = 130, 141

last_word: Callable[[], str] = str
"""Returns the message of an interrupted command on standard error."""

_is_interrupted = False
_failure = 0
"""The exit status of a command that failed; 0 until one has."""


class OutputLost(NotWritten):
    """Standard output cannot be written."""


def status_of(command: Callable[[], int]) -> int:
    """Runs a command, reports its error, and returns the exit status."""
    try:
        return _reported(command)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception:
        # A clean-up that an interrupt begins too early may fail.
        if _is_interrupted:
            return _INTERRUPTED
        raise


def fail(status: int, *lines: str) -> int:
    """Reports why a command failed, and returns its exit status."""
    if _is_interrupted:
        # That is why it failed.
        return _INTERRUPTED
    print("seqserve: " + "\n".join(filter(None, lines)), file=sys.stderr)
    return status


def write_bytes(data: bytes) -> None:
    """Writes text to standard output even if it is not valid UTF-8."""
    try:
        sys.stdout.buffer.write(data)
    except OSError as error:
        _output_broken(error)


def _reported(command: Callable[[], int]) -> int:
    try:
        _guard_streams()
        try:
            status = command()
        except SystemExit:
            # From argparse, which has printed the help.
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_output()
        return _READER_GONE
    except SeqserveError as error:
        if isinstance(error, OutputLost):
            _discard_output()
        notes = getattr(error, "__notes__", [])
        status = 2 if isinstance(error, OptionError) else 1
        return fail(status, str(error), *notes, advice_on(error))


# ---- interrupts


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


def begin() -> None:
    """Ends the process at an interrupt, and after a failure without the end of the interpreter.

    A command that fails may leave calls in flight. The end of the interpreter stops gRPC's threads
    where they are, perhaps with the lock that a call needs when it is deleted.
    """
    # The first to be registered runs last.
    atexit.register(_end_if_failed)
    end_at_once()


def end_with(status: int) -> None:
    """Ends the process with an exit status; after an interrupt always the same."""
    global _failure
    end_at_once()
    if _is_interrupted:
        # A library that swallows it must not hide it, nor the timer outlive its handler.
        status = _INTERRUPTED
    if status in (_INTERRUPTED, _READER_GONE):
        # Joining threads here would wait for calls in flight.
        _flush_and_exit(status)
    _failure = status
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _is_interrupted
    _is_interrupted = True
    # A second one does not wait.
    signal.signal(signal.SIGINT, _end)
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.signal(signal.SIGALRM, _end)
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
    signal.default_int_handler(number, frame)


def _end(number: int, frame: FrameType | None) -> None:
    _exit(_INTERRUPTED)


def _end_if_failed() -> None:
    if _failure:
        _flush_and_exit(_failure)


def _end_if_interrupted(failure: sys.UnraisableHookArgs) -> None:
    # Raised where Python cannot pass it on, as in a destructor, it would be reported and lost.
    if failure.exc_type is KeyboardInterrupt:
        _exit(_INTERRUPTED)
    sys.__unraisablehook__(failure)


def _flush_and_exit(status: int) -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        _exit(status)


def _exit(status: int) -> None:
    try:
        if status == _INTERRUPTED:
            # Not by sys.stderr, which the interrupt may have stopped in the midst of a line.
            os.write(2, last_word().encode())
    finally:
        os._exit(status)


# ---- standard streams


def _guard_streams() -> None:
    """Replaces the streams of the process, but not those that somebody else has replaced.

    A closed one is opened, so that its use fails like the use of a broken one and no file that
    is opened later gets its number.
    """
    # In the order of their numbers, because an opened file gets the lowest free one.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), encoding="utf-8")
    if sys.stdout is sys.__stdout__:
        sys.stdout = _Guarded(sys.stdout, os.O_RDONLY, _output_broken, "strict")
    if sys.stderr is sys.__stderr__:
        # A report that cannot be written is lost.
        sys.stderr = _Guarded(sys.stderr, os.O_WRONLY, lambda error: None, "backslashreplace")


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Guarded(io.TextIOWrapper):
    """Text whose errors go to ``broken``. It buffers no bytes: Ctrl-C would write them twice."""

    def __init__(
        self, stream: Any, mode: int, broken: Callable[[OSError], None], errors: str
    ) -> None:
        number = os.open(os.devnull, mode) if stream is None else stream.fileno()
        data = os.fdopen(number, "wb", closefd=False)
        by_line = stream is None or stream.line_buffering or stream.write_through
        # Texts may be of any language, whatever the locale.
        super().__init__(data, encoding="utf-8", errors=errors, line_buffering=by_line)
        self._broken = broken

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._broken(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._broken(error)


def _output_broken(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        raise error
    raise OutputLost(f"standard output: {error.strerror}") from None
