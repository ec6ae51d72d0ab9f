"""Calls that have arrived and wait to be served, and which further ones may join them.

A call costs the front most of a millisecond, its refusal by the engine's queue hardly less. Beyond
what the front can serve, calls are refused on arrival, before anything is done for them, so that
those that it accepted are served soon. Callers share the places as they share the engine's queue.
Lives in the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.request import Priority
from seqserve_server.front.call.fair_memory import Shares
from seqserve_server.front.engine_client.refusals import QueueKey, RefusalCache

_LONGEST_S = 0.3
"""What an accepted call waits at most, about; people hardly mind it."""
_FEWEST, _MOST = 128, 256
"""Bounds of how many calls of a caller that is alone may wait, however fast they are served."""
# Time to serve a call, as long as none was measured, and the weight of each new measurement.
_INTERVAL_S = 0.001
_WEIGHT = 0.05
_CALLER_SHARE = 0.5


class Backlog:
    """Bounds the calls that wait to be served."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts empty; the clock tells seconds, from any origin."""
        self._places = Shares(0, _CALLER_SHARE)
        self._clock = clock
        self._served_s, self._is_busy = clock(), False
        self._interval_s = _INTERVAL_S
        self._refusals = RefusalCache(clock)

    def __len__(self) -> int:
        """Counts the calls that wait."""
        return self._places.used

    def enter(self, caller: str) -> None:
        """Adds a call.

        Raises:
            QueueFull: Too many calls wait, of this caller or of all.
        """
        served = int(_LONGEST_S / self._interval_s)
        self._places.total = int(min(max(served, _FEWEST), _MOST) / _CALLER_SHARE)
        if not self._places.fits(caller, 1):
            raise self._refusal(caller)
        self._places.take(caller, 1)

    def leave(self, caller: str) -> None:
        """Tells that a call of a caller is served now, or has ended while it waited."""
        now_s = self._clock()
        self._places.give(caller, 1)
        if self._is_busy:
            interval_s = min(now_s - self._served_s, _LONGEST_S)
            self._interval_s += _WEIGHT * (interval_s - self._interval_s)
        self._served_s, self._is_busy = now_s, len(self) > 0

    def _refusal(self, caller: str) -> QueueFull:
        wait_s = len(self) * self._interval_s
        reason = f"{len(self)} calls wait for the server already"
        full = QueueFull(reason, wait_s, Bound.BACKLOG, self._interval_s)
        return self._refusals.refused(QueueKey(caller, "", Priority.NORMAL), full)
