"""Circuit breaker of an engine that keeps failing: when to start it again, and when to trust it.

::

              failed, for the third time in a row          started
    CLOSED ──────────────────────────────────────▶ OPEN ────────────▶ HALF_OPEN
      ▲                                              ▲    failed          │
      │                                              └────────────────────┤
      └───────────────────────────────────────────────────────────────────┘
                                  it ran for trial_s

A failure is the end of a process, or a start that did not succeed. Pauses between starts double
with each failure in a row; a process that ran for ``forget_s`` ends the row.
Source: M. T. Nygard, Release It!, 2nd edition, 2018, "Circuit Breaker".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

# More doublings than this leave the range of floats.
_MAX_DOUBLINGS = 64


class BreakerState(Enum):
    """Whether an engine is trusted with calls."""

    CLOSED = "closed"
    """Trusted."""
    OPEN = "open"
    """Failed too often in a row, and does not run."""
    HALF_OPEN = "half-open"
    """Failed too often in a row; runs on trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """Bounds of a circuit breaker; times are in seconds."""

    threshold: int = 3
    """Failures in a row that open it."""
    pause_s: float = 0.5
    """Pause before the second start in a row; there is none before the first."""
    max_pause_s: float = 30.0
    trial_s: float = 5.0
    """Time that an engine on trial must run to be trusted."""
    forget_s: float = 300.0
    """Time that an engine must run for its failures to be forgotten."""


class CircuitBreaker:
    """Counts the failures of one engine."""

    def __init__(
        self, limits: BreakerLimits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Starts closed."""
        self._limits = limits or BreakerLimits()
        self._clock = clock
        self._started_s: float | None = None
        self.failures = 0
        """Failures in a row."""

    def started(self) -> None:
        """Notes that a process serves."""
        self._started_s = self._clock()

    def failed(self) -> None:
        """Counts the end of a process, or a start that did not succeed."""
        if self._ran_s() >= self._limits.forget_s:
            self.failures = 0
        self.failures += 1
        self._started_s = None

    @property
    def state(self) -> BreakerState:
        """Whether the engine is trusted."""
        if self.failures < self._limits.threshold:
            return BreakerState.CLOSED
        if self._started_s is None:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN if self.trial_left_s > 0.0 else BreakerState.CLOSED

    @property
    def pause_s(self) -> float:
        """Time to wait before the next start."""
        if self.failures < 2:
            return 0.0
        doublings = min(self.failures - 2, _MAX_DOUBLINGS)
        return min(self._limits.pause_s * 2.0**doublings, self._limits.max_pause_s)

    @property
    def trial_left_s(self) -> float:
        """Time that the engine must go on running to be trusted, if it is on trial."""
        return max(0.0, self._limits.trial_s - self._ran_s())

    def _ran_s(self) -> float:
        return 0.0 if self._started_s is None else self._clock() - self._started_s
