"""Reports on standard error that a command waits for its server, and when it is back."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from seqserve.availability import LOG


@contextmanager
def outages_reported(before: Callable[[], None]) -> Generator[None, None, None]:
    """Reports the outages of all clients; calls ``before`` before each report."""
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
    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__()
        self._before = before

    def emit(self, record: logging.LogRecord) -> None:
        self._before()
        print(f"seqserve: {record.getMessage()}", file=sys.stderr, flush=True)
