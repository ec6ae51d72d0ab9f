"""Decides when to retry a failed call: exponential back-off with full jitter, within the deadline.

A state machine that neither sleeps nor calls, so both clients use it. It retries only errors after
which nothing was done: the server is unreachable, loading, draining, its queue is full, or it
cancelled the call, which this client did not ask for. A delay that the server asks for (RetryInfo)
is the minimum; the jitter is added, so that clients that were refused together do not return
together.
Source: Brooker 2015, "Exponential Backoff And Jitter" (full jitter).
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from seqserve.errors import (
    CallError,
    Cancelled,
    DeadlineExceeded,
    OptionError,
    Overloaded,
    Unavailable,
    Unreachable,
    invalid_argument,
)

# Thirty years. gRPC counts deadlines in 64 bits of nanoseconds since 1970, so a later one may
# overflow into the past; and no thread can sleep longer.
_MAX_S = 1e9
# A server asks for seconds while it is full, and for hours where a quota is used up.
_MOST_ASKED_S = 300.0
_DURATIONS = ("connect_timeout_s", "away_timeout_s", "initial_backoff_s", "max_backoff_s")
_REFUSED = "Connection refused"
_MISSED_HERE = "Deadline Exceeded"
"""The message of gRPC for a deadline that passed on this side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How a call is retried; by default until its deadline."""

    max_attempts: int | None = None
    """Maximum number of attempts without an answer, including the first; 1 never retries, None sets
    no limit."""
    connect_timeout_s: float = 5.0
    """Time for which a call tries to reach a server that the client has never reached;
    ``math.inf`` for no limit. A server that was reached before is waited for until the deadline."""
    away_timeout_s: float = 0.0
    """Time for which a call tries to reach a server that went away, beyond ``max_attempts``. The
    server, or another one of the target, may be back before the client notices."""
    initial_backoff_s: float = 0.1
    """Maximum delay after the first failure; doubles with every further failure."""
    max_backoff_s: float = 2.0
    """Maximum delay after any failure, without the delay that the server asks for."""

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if attempts is not None and not (isinstance(attempts, int) and attempts >= 1):
            raise OptionError(f"retry.max_attempts: {attempts!r} is not a whole number from 1 on")
        for name in _DURATIONS:
            value = getattr(self, name)
            if not (isinstance(value, int | float) and value >= 0):
                raise OptionError(f"retry.{name}: {value!r} is not a number of seconds from 0 on")


class Attempts:
    """The attempts at one call, from its start to its deadline."""

    def __init__(
        self,
        policy: RetryPolicy,
        timeout_s: float,
        availability: Availability,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Starts the clock.

        Args:
            timeout_s: Time for all attempts and delays; no limit if ``math.inf`` or more than
                thirty years.
            availability: Of the server; it learns how the attempts end.
            clock: Seconds, from any origin; the clock of ``availability``.
            jitter: Uniform random numbers in [0, 1).
        """
        if not (isinstance(timeout_s, int | float) and timeout_s > 0):
            reason = f"{timeout_s!r} is not a number of seconds above 0; math.inf is no limit"
            raise invalid_argument("timeout_s", reason)
        self._policy = policy
        self._availability = availability
        self._clock = clock
        self._jitter = jitter
        self._started_s = self._began_s = clock()
        self._deadline_s = self._started_s + timeout_s if timeout_s <= _MAX_S else math.inf
        self._timeout_s = timeout_s
        self._failures = 0
        self._count = 0
        self._last_error: CallError | None = None
        self._answer = ""

    def part(self) -> Attempts:
        """Returns attempts at a part of the call, with their own count and the same deadline."""
        part = copy(self)
        part._failures = 0
        return part

    def begin(self) -> float | None:
        """Begins an attempt; returns the time left for it, None without a limit."""
        self._count += 1
        self._began_s = self._clock()
        if math.isinf(self._deadline_s):
            return None
        return max(0.0, self._deadline_s - self._began_s)

    def answered(self) -> None:
        """Resets the count of failures, because the server has answered."""
        self._failures = 0
        self._availability.answered(self._began_s)

    def delay_after(self, error: CallError) -> float | None:
        """Counts a failure; returns the seconds to wait before the next attempt, None for none."""
        self._failures += 1
        if isinstance(error, Overloaded):
            self._availability.answered(self._began_s)
            self._last_error = error
            return self._delay_after(error)
        if isinstance(error, Unavailable) or (isinstance(error, Cancelled) and error.by_server):
            self._availability.failed(error)
            if isinstance(error, Unreachable) and _REFUSED not in error.details:
                self._answer = error.details
            delay_s = self._delay_after(error)
            if delay_s is not None:
                self._last_error = error
                self._availability.awaited(error)
            return delay_s
        return None

    def explain(self, error: CallError) -> None:
        """Adds to the error that ends the call where its time went."""
        now_s = self._clock()
        if isinstance(error, Unreachable):
            tries = f"{self._count} attempts" if self._count > 1 else "1 attempt"
            # Of a host's addresses gRPC names the one it tried last; a server may have answered at
            # another one.
            reason = self._answer or error.details
            details = f"{reason} ({tries} in {now_s - self._started_s:.1f} s)"
        elif isinstance(error, DeadlineExceeded) and error.details == _MISSED_HERE:
            details = f"not finished within {self._timeout_s:g} s"
            if self._last_error:
                before_s = self._began_s - self._started_s
                details += (
                    f"; for {before_s:.1f} s attempts failed, the last with {self._last_error}"
                )
            details += f"; the call had run for {now_s - self._began_s:.1f} s"
        else:
            return
        error.details = details
        error.args = error.code, details

    def _delay_after(self, error: CallError) -> float | None:
        most = self._policy.max_attempts
        if most is not None and self._failures >= most and not self._may_return(error):
            return None
        asked_s = error.retry_after_s or 0.0
        # The next attempt gets some time too.
        spare_s = self._end_s() - self._clock() - asked_s - self._policy.initial_backoff_s
        if spare_s <= 0 or asked_s > _MOST_ASKED_S:
            return None
        # The exponent is bounded, because a float would overflow in a long series of failures.
        ceiling_s = self._policy.initial_backoff_s * 2.0 ** min(self._failures - 1, 60)
        return asked_s + self._jitter() * min(ceiling_s, self._policy.max_backoff_s, spare_s)

    def _may_return(self, error: CallError) -> bool:
        is_away = isinstance(error, Unreachable) and self._availability.was_reached
        return is_away and self._clock() - self._started_s < self._policy.away_timeout_s

    def _end_s(self) -> float:
        if self._availability.was_reached:
            return self._deadline_s
        return min(self._deadline_s, self._started_s + self._policy.connect_timeout_s)


LOG = logging.getLogger("seqserve.client")

_SHORT_S = 1.0


class Availability:
    """The availability of a client's server, shared by its calls and threads."""

    def __init__(self, target: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts with a server that was never reached; ``target`` is for the log."""
        self.was_reached = False
        """Whether a connection to the server was ever made."""
        self._target = target
        self._clock = clock
        self._lock = threading.Lock()
        self._lost_s: float | None = None
        self._is_logged = False

    def failed(self, error: CallError) -> None:
        """Notes that a call failed because the server is not available."""
        with self._lock:
            self.was_reached |= not isinstance(error, Unreachable)
            if self._lost_s is None:
                self._lost_s = self._clock()

    def awaited(self, error: CallError) -> None:
        """Logs the outage if it lasts, because a call waits for its end."""
        with self._lock:
            lasts = self._lost_s is not None and self._clock() - self._lost_s >= _SHORT_S
            is_news = lasts and not self._is_logged
            self._is_logged |= is_news
        if is_news:
            LOG.warning("%s is not available, waiting for it: %s", self._target, error)

    def answered(self, began_s: float) -> None:
        """Notes an answer to a call that began at ``began_s``; it ends an outage before that."""
        self.was_reached = True
        with self._lock:
            # Calls that began earlier may still be answered by a server that refuses new ones.
            if self._lost_s is None or began_s <= self._lost_s:
                return
            self._lost_s = None
            was_logged, self._is_logged = self._is_logged, False
        if was_logged:
            LOG.info("%s is available again", self._target)
