"""Reports while a command runs: its progress, and that it waits for its server."""

import logging
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

from seqserve.retry import LOG

_INTERVAL_S = 0.2
# Source: ECMA-48, EL; understood by every terminal that is not "dumb".
_CLEAR = "\r\x1b[K"


def is_terminal(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal whose lines can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Progress:
    """Counts and shows the count, in one line of the terminal that is overwritten."""

    def __init__(
        self,
        stream: TextIO,
        unit: str,
        *,
        is_shown: bool,
        total: int | None = None,
        begin: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts to count ``unit``, a plural.

        An earlier run has done ``begin`` of them; ``total`` is None if it is unknown.
        """
        self._total = total
        self._stream = stream
        self._unit = unit
        self._is_shown = is_shown
        self._clock = clock
        self._began_s = clock()
        self._next_s = self._began_s + _INTERVAL_S
        self._count = self._begin = begin

    def advance(self, count: int = 1) -> None:
        """Adds to the count."""
        self._count += count
        if self._is_shown and self._clock() >= self._next_s:
            self._show()

    def clear(self) -> None:
        """Clears the line for other output."""
        if self._is_shown:
            self._stream.write(_CLEAR)

    def close(self) -> None:
        """Shows the last count and ends the line."""
        if self._is_shown:
            self._show("\n")

    def _show(self, end: str = "") -> None:
        now_s = self._clock()
        self._next_s = now_s + _INTERVAL_S
        rate = (self._count - self._begin) / max(now_s - self._began_s, 1e-9)
        of = left = ""
        if self._total is not None:
            of = f" of {self._total:,}"
            if rate and not end:
                left = f", {_duration((self._total - self._count) / rate)} left"
        self._stream.write(
            f"{_CLEAR}seqserve: {self._count:,}{of} {self._unit}, {rate:,.0f} a second{left}{end}"
        )
        self._stream.flush()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


@contextmanager
def outages_reported(before: Callable[[], object] = lambda: None) -> Generator[None, None, None]:
    """Reports the beginnings and ends of server outages on standard error, for all clients.

    ``before`` is called before each report.
    """
    handler = _Reports(before)
    level, propagates = LOG.level, LOG.propagate
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(level)
        LOG.propagate = propagates


class _Reports(logging.Handler):
    def __init__(self, before: Callable[[], object]) -> None:
        super().__init__()
        self._before = before

    def emit(self, record: logging.LogRecord) -> None:
        self._before()
        print(f"seqserve: {record.getMessage()}", file=sys.stderr, flush=True)
