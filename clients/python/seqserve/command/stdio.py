"""The process's own streams: one that cannot be used ends in a status, and in no traceback.

Standard output is what was asked for, so a command that cannot write it has failed. Standard error
tells of it; what cannot be told changes nothing. What is closed is opened such that its use fails
like any other, and that no file opened later takes its number.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, TextIO

from seqserve.errors import SeqserveError


class OutputLost(SeqserveError):
    """Standard output cannot be written."""


def prepare() -> None:
    """Takes the process's streams in hand; those that somebody has put in their place stay."""
    # In the order of their numbers, as each that is opened gets the lowest that is free.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), encoding="utf-8")
    if sys.stdout is sys.__stdout__:
        # Texts are of any language, whatever the locale.
        sys.stdout = _Output(_written(sys.stdout, os.O_RDONLY), **_kept(sys.stdout))
    if sys.stderr is sys.__stderr__:
        reports = _written(sys.stderr, os.O_WRONLY)
        sys.stderr = _Reports(reports, errors="backslashreplace", **_kept(sys.stderr))


def discard_output() -> None:
    """Forgets what is not written yet, of which Python would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Texts, not bytes, are looked after: an interrupt behind a write of bytes would have them written
# twice.
class _Output(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with _told():
            return super().write(text)

    def flush(self) -> None:
        with _told():
            super().flush()


class _Reports(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


@contextmanager
def _told() -> Generator[None, None, None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(f"standard output: {error.strerror}") from None


def _written(stream: TextIO | None, mode: int) -> BinaryIO:
    number = os.open(os.devnull, mode) if stream is None else stream.fileno()
    return os.fdopen(number, "wb", closefd=False)


def _kept(stream: Any) -> dict[str, Any]:
    by_line = stream is None or stream.line_buffering or stream.write_through
    return {"encoding": "utf-8", "line_buffering": by_line}
