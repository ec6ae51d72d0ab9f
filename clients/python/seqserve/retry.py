"""When to try a failed call again: exponential back-off with full jitter, within the deadline.

A pure state machine: it neither sleeps nor calls, so that the client and its awaited twin share it.
Only errors that say "nothing was done, come back" are tried again: the server cannot be reached, is
loading or draining, or its queue is full. A wait that the server asks for (RetryInfo) is the least
to wait; the jitter goes on top, so that callers turned away together do not return together.
Source: Brooker 2015, "Exponential Backoff And Jitter" (full jitter).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from seqserve.errors import CallError, InvalidArgument, Overloaded, Unavailable

# Thirty years. gRPC counts deadlines in 64 bits of nanoseconds since 1970, so that one further off
# may lie in the past; and no thread can sleep so long.
_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how patiently, to try again."""

    max_attempts: int = 6
    """Most attempts, the first counted; 1 never tries again."""
    initial_backoff_s: float = 0.1
    """Longest wait after the first failure; doubles with every further one."""
    max_backoff_s: float = 5.0
    """Longest wait after any failure, what the server asks for not counted."""


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
            policy: How often and how patiently to try.
            timeout_s: Time for all attempts and the waits between them; no limit where it is
                ``math.inf``, or more than thirty years.
            clock: Seconds, from any origin.
            jitter: Numbers from 0 to 1, evenly spread.

        Raises:
            InvalidArgument: The timeout is not more than 0.
        """
        if not timeout_s > 0:
            reason = f"timeout_s: {timeout_s} is not more than 0; use math.inf for no limit"
            raise InvalidArgument("INVALID_ARGUMENT", reason, field="timeout_s")
        self._policy = policy
        self._clock = clock
        self._jitter = jitter
        self._deadline_s = clock() + timeout_s if timeout_s <= _LONGEST_S else math.inf
        self._failures = 0

    def remaining_s(self) -> float | None:
        """Gives the time left for an attempt; None where there is no limit."""
        if math.isinf(self._deadline_s):
            return None
        return max(0.0, self._deadline_s - self._clock())

    def answered(self) -> None:
        """Forgets earlier failures, as the server has answered something since."""
        self._failures = 0

    def delay_after(self, error: CallError) -> float | None:
        """Counts a failure and decides what follows.

        Args:
            error: How the attempt failed.

        Returns:
            Seconds to wait before the next attempt; None where there is to be none.
        """
        self._failures += 1
        if not isinstance(error, (Unavailable, Overloaded)):
            return None
        if self._failures >= self._policy.max_attempts:
            return None
        # The exponent is bounded, for a float overflows long before a patient caller gives up.
        ceiling_s = self._policy.initial_backoff_s * 2.0 ** min(self._failures - 1, 60)
        delay_s = self._jitter() * min(ceiling_s, self._policy.max_backoff_s)
        delay_s += error.retry_after_s or 0.0
        if delay_s > _LONGEST_S or self._clock() + delay_s >= self._deadline_s:
            return None
        return delay_s
