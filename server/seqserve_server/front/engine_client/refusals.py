"""What callers are told whom an engine has refused: when to come back.

Those of a caller who are refused one after the other are told later and later times, at the pace at
which they can be served, so that they do not come back all at once.

A caller who floods is refused again and again for the same reason. For a moment the answer is known
without asking the engine, which spares its process a message, and the server's the tokens of a
source: in a flood that is a third of what a refusal costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.request import Priority, Request

LEAST_S = 0.05
MOST_S = 30.0
"""Bounds of what is promised."""
MOST_HOLDERS = 1024
MOMENT_S = 0.02
"""Longest that a refusal is repeated without asking; less than anybody notices who waits."""
# Else a queue that is worked off quickly could be empty before it is asked again.
_MOMENT_SHARE = 0.25
# Of the request itself, not of the queue: another one of the caller may be let in.
_OWN_BOUNDS = (Bound.DEADLINE, Bound.TOKENS)


class QueueKey(NamedTuple):
    """Whose requests stand one behind the other."""

    caller: str
    priority: Priority
    has_target: bool = False
    """Known targets wait in a queue of their own."""

    @classmethod
    def of(cls, request: Request) -> QueueKey:
        """Names the holder of a request."""
        return cls(request.caller, request.priority, request.target is not None)


@dataclass(slots=True)
class _Promise:
    """The last one to a holder."""

    full: QueueFull
    repeated_until_s: float
    free_s: float
    """When all that was promised so far will be done."""


class RefusalCache:
    """Those of one engine; lives in the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins with none.

        Args:
            clock: Whatever its zero, in seconds.
        """
        self._clock = clock
        self._promises: dict[QueueKey, _Promise] = {}

    def refused(self, holder: QueueKey, full: QueueFull) -> QueueFull:
        """Gives what a caller is told, and notes it.

        Args:
            holder: Who was refused.
            full: What the engine says: why, and when what is before the request will have gone.
        """
        now_s = self._clock()
        moment_s = min(MOMENT_S, _MOMENT_SHARE * full.retry_after_s)
        until_s = now_s if full.bound in _OWN_BOUNDS else now_s + moment_s
        before = self._promises.pop(holder, None)
        promise = _Promise(full, until_s, before.free_s if before else now_s)
        self._promises[holder] = promise
        if len(self._promises) > MOST_HOLDERS:
            # The one who was told so longest ago.
            del self._promises[next(iter(self._promises))]
        return _told(promise, now_s)

    def check(self, holder: QueueKey) -> None:
        """Lets a holder pass whom the engine may take in.

        Raises:
            QueueFull: It has refused the one before, a moment ago.
        """
        promise = self._promises.get(holder)
        if promise is None:
            return
        now_s = self._clock()
        if now_s < promise.repeated_until_s:
            raise _told(promise, now_s)


def _told(promise: _Promise, now_s: float) -> QueueFull:
    full = promise.full
    free_s = max(now_s + full.retry_after_s, promise.free_s)
    retry_s = min(max(free_s - now_s, LEAST_S), MOST_S)
    promise.free_s = now_s + retry_s + full.spacing_s
    return QueueFull(full.reason, retry_s, full.bound)
