"""Estimates how long work takes when every slot is busy, from the requests that have ended.

Every request that ends counts, whether or not others waited. While slots are free, requests are
faster than in a full engine, so the estimate is too short until the engine has been full for as
long as a request takes.
"""

from __future__ import annotations

# Weight of the newest request in the averages.
_SMOOTHING = 0.05
# Requests that must end before an estimate is used.
_MIN_ENDED = 4


class Pace:
    """Averages over the requests that have ended."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._slot_seconds = self._work = 0.0
        self._ended = 0
        self.service_s = 0.0
        """How long a request occupies its slots."""

    def ended(self, work: int, rows: float, service_s: float) -> None:
        """Adds a request that has left its slots."""
        self._ended += 1
        # A plain mean at first.
        weight = max(_SMOOTHING, 1 / self._ended)
        self._slot_seconds += weight * (rows * service_s - self._slot_seconds)
        self._work += weight * (work - self._work)
        self.service_s += weight * (service_s - self.service_s)

    @property
    def is_known(self) -> bool:
        """Whether enough requests have ended for an estimate."""
        return self._ended >= _MIN_ENDED

    @property
    def interval_s(self) -> float:
        """Time between the ends of two requests, while no slot is free."""
        return self._slot_seconds / self._slots

    def duration_s(self, work: float) -> float:
        """Estimates how long an amount of work takes; only where the pace is known."""
        return work / self._work * self.interval_s
