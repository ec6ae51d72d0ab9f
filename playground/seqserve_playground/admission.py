"""Bounds how many calls run at once and how many begin in a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Refused(Exception):
    """There are too many calls."""


class Admission:
    """Admits calls by a token bucket, and up to a number at once; all readers share both."""

    def __init__(
        self,
        calls: int = 16,
        rate: float = 20.0,
        burst: int = 40,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with a full bucket.

        Args:
            calls: Maximum number of calls at once.
            rate: Calls a second, in the long run.
            burst: Calls that may begin at once after a pause.
            clock: Seconds, from any origin.
        """
        self.free = calls
        """Number of calls that may still begin."""
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._filled_s = float(burst), clock()

    @contextmanager
    def call(self) -> Generator[None, None, None]:
        """Holds a place for a call.

        Raises:
            Refused: No place is free, or the rate is exceeded.
        """
        now_s = self._clock()
        filled = self._tokens + (now_s - self._filled_s) * self._rate
        self._tokens, self._filled_s = min(filled, self._burst), now_s
        if self._tokens < 1:
            raise Refused(f"more than {self._rate:g} calls a second; wait a moment")
        if not self.free:
            raise Refused("too many calls are under way; wait for one to end")
        self._tokens -= 1
        self.free -= 1
        try:
            yield
        finally:
            self.free += 1
