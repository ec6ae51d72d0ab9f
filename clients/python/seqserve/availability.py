"""Whether the server of a client answers, as its calls find out.

The logger ``seqserve.client`` logs an outage that lasts once, and its end once. It does not log a
short one, as when one of several servers drains.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from seqserve.errors import CallError, Unreachable

LOG = logging.getLogger("seqserve.client")

_SHORT_S = 1.0


class Availability:
    """What the calls of a client know about its server; threads may share it."""

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
