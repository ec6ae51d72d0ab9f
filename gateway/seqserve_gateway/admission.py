"""Bounds how many calls run at once and how many begin in a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from seqserve_gateway.failure import Failure


class Admission:
    """Admits calls by a token bucket, and up to a number at once; all callers share both."""

    def __init__(
        self,
        calls: int = 16,
        rate: float = 20.0,
        burst: float = 40,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with a full bucket.

        Args:
            calls: Maximum number of calls at once.
            rate: Calls a second, in the long run; ``math.inf`` for no limit.
            burst: Calls that may begin at once after a pause.
            clock: Seconds, from any origin.
        """
        self.is_open = True
        """Whether calls are admitted; set to False when the process is to end."""
        self.free = calls
        """Number of calls that may still begin."""
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._filled_s = float(burst), clock()
        self._calls = calls

    @property
    def under_way(self) -> int:
        """Number of calls that have begun and not ended."""
        return self._calls - self.free

    @contextmanager
    def call(self) -> Generator[None, None, None]:
        """Holds a place for a call.

        Raises:
            Failure: No place is free, the rate is exceeded, or admission has ended.
        """
        self._admit()
        self.free -= 1
        try:
            yield
        finally:
            self.free += 1

    def _admit(self) -> None:
        if not self.is_open:
            raise Failure("UNAVAILABLE", "the gateway is shutting down")
        if not self.free:
            reason = "too many calls are under way; wait for one to end"
            raise Failure("RESOURCE_EXHAUSTED", reason)
        if not math.isinf(self._rate):
            now_s = self._clock()
            filled = self._tokens + (now_s - self._filled_s) * self._rate
            self._tokens, self._filled_s = min(filled, self._burst), now_s
            if self._tokens < 1:
                reason = f"more than {self._rate:g} calls a second; wait a moment"
                raise Failure("RESOURCE_EXHAUSTED", reason)
            self._tokens -= 1
