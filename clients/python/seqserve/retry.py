"""Decides when to retry a failed call: exponential back-off with full jitter, within the deadline.

A state machine that neither sleeps nor calls, so both clients use it. It retries only errors after
which nothing was done: the server is unreachable, loading, draining, or its queue is full. A delay
that the server asks for (RetryInfo) is the minimum; the jitter is added, so that clients that were
refused together do not return together.
Source: Brooker 2015, "Exponential Backoff And Jitter" (full jitter).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from seqserve.errors import CallError, Overloaded, Unavailable, invalid_argument

# Thirty years. gRPC counts deadlines in 64 bits of nanoseconds since 1970, so a later one may
# overflow into the past; and no thread can sleep longer.
_MAX_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long to retry."""

    max_attempts: int = 6
    """Maximum number of attempts, including the first; 1 never retries."""
    initial_backoff_s: float = 0.1
    """Maximum delay after the first failure; doubles with every further failure."""
    max_backoff_s: float = 5.0
    """Maximum delay after any failure, without the delay that the server asks for."""


class Attempts:
    """The attempts at one call, from its start to its deadline."""

    def __init__(
        self,
        policy: RetryPolicy,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Starts the clock.

        Args:
            policy: How often and how long to retry.
            timeout_s: Time for all attempts and delays; no limit if ``math.inf`` or more than
                thirty years.
            clock: Seconds, from any origin.
            jitter: Uniform random numbers in [0, 1).
        """
        if not timeout_s > 0:
            reason = f"{timeout_s} is not more than 0; use math.inf for no limit"
            raise invalid_argument("timeout_s", reason)
        self._policy = policy
        self._clock = clock
        self._jitter = jitter
        self._deadline_s = clock() + timeout_s if timeout_s <= _MAX_S else math.inf
        self._failures = 0

    def remaining_s(self) -> float | None:
        """Returns the time left for an attempt; None without a limit."""
        if math.isinf(self._deadline_s):
            return None
        return max(0.0, self._deadline_s - self._clock())

    def answered(self) -> None:
        """Resets the count of failures, because the server has answered."""
        self._failures = 0

    def delay_after(self, error: CallError) -> float | None:
        """Counts a failure; returns the seconds to wait before the next attempt, None for none."""
        self._failures += 1
        if not isinstance(error, (Unavailable, Overloaded)):
            return None
        if self._failures >= self._policy.max_attempts:
            return None
        # The exponent is bounded, because a float would overflow in a long series of failures.
        ceiling_s = self._policy.initial_backoff_s * 2.0 ** min(self._failures - 1, 60)
        delay_s = self._jitter() * min(ceiling_s, self._policy.max_backoff_s)
        delay_s += error.retry_after_s or 0.0
        if delay_s > _MAX_S or self._clock() + delay_s >= self._deadline_s:
            return None
        return delay_s
