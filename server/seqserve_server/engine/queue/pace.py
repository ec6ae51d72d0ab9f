"""How fast work gets done when every slot is taken; estimates of waiting rest on it.

Every request that ends tells how long it held its slots for its work, whether or not others waited.
While slots are free that is less than when none is, so an estimate errs on the short side until the
engine has been full for as long as a request takes.
"""

from __future__ import annotations

# Weight of the newest request in what is known.
_SMOOTHING = 0.05
# Requests that have to end before an estimate is worth anything.
_LEAST_ENDED = 4


class Pace:
    """Learns from what ends."""

    def __init__(self, slots: int) -> None:
        """Begins with nothing known.

        Args:
            slots: Rows that run at once.
        """
        self._slots = slots
        self._slot_seconds = self._work = 0.0
        self._ended = 0
        self.held_s = 0.0
        """How long a request holds its slots."""

    def ended(self, work: int, rows: float, held_s: float) -> None:
        """Notes a request that has left its slots.

        Args:
            work: Tokens that it was expected to cost.
            rows: Slots that it had.
            held_s: How long.
        """
        self._ended += 1
        # A plain mean at first.
        weight = max(_SMOOTHING, 1 / self._ended)
        self._slot_seconds += weight * (rows * held_s - self._slot_seconds)
        self._work += weight * (work - self._work)
        self.held_s += weight * (held_s - self.held_s)

    @property
    def is_known(self) -> bool:
        """Whether enough has ended for an estimate."""
        return self._ended >= _LEAST_ENDED

    @property
    def interval_s(self) -> float:
        """Time from one request's end to the next one's, while no slot is free."""
        return self._slot_seconds / self._slots

    def duration_s(self, work: float) -> float:
        """Estimates how long so much work takes; only where the pace is known."""
        return work / self._work * self.interval_s
