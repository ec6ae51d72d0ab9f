"""The standard streams of the process: a broken one ends in an exit status, not in a traceback.

Standard output carries the answer, so a command that cannot write it has failed; an error on
standard error is ignored. A closed stream is opened so that its use fails like that of a broken
one, and so that no file opened later gets its number.
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
    """Replaces the streams of the process, but not those that somebody else has replaced."""
    # In the order of their numbers, because an opened file gets the lowest free one.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), encoding="utf-8")
    if sys.stdout is sys.__stdout__:
        # Texts may be of any language, whatever the locale.
        sys.stdout = _Output(_bytes_of(sys.stdout, os.O_RDONLY), **_settings_of(sys.stdout))
    if sys.stderr is sys.__stderr__:
        reports = _bytes_of(sys.stderr, os.O_WRONLY)
        sys.stderr = _Reports(reports, errors="backslashreplace", **_settings_of(sys.stderr))


def discard_output() -> None:
    """Discards unwritten output, about which Python would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# These guard texts, not bytes: after an interrupt, bytes would be written twice.
class _Output(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with _translated():
            return super().write(text)

    def flush(self) -> None:
        with _translated():
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
def _translated() -> Generator[None, None, None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(f"standard output: {error.strerror}") from None


def _bytes_of(stream: TextIO | None, mode: int) -> BinaryIO:
    number = os.open(os.devnull, mode) if stream is None else stream.fileno()
    return os.fdopen(number, "wb", closefd=False)


def _settings_of(stream: Any) -> dict[str, Any]:
    by_line = stream is None or stream.line_buffering or stream.write_through
    return {"encoding": "utf-8", "line_buffering": by_line}
