"""Retry times of requests that the queue refused, and refusals without asking the engine.

Refused requests of one flow get later and later retry times, at the pace at which the engine can
serve them, so that they do not come back all at once.

In a flood the front repeats a refusal for a moment without asking the engine. That saves the engine
a message and the front the tokenizing of the source: a third of the cost of a refusal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.request import Priority, ScoreSpec, Spec

MIN_RETRY_S = 0.05
MAX_RETRY_S = 30.0
MAX_KEYS = 1024
"""Flows that are remembered."""
MAX_REPEAT_S = 0.02
"""Longest that a refusal is repeated without asking the engine; too short for people to notice."""
# A queue that is worked off quickly may be empty before the engine is asked again.
_REPEAT_SHARE = 0.25
# Bounds that depend on the request itself: another request of the flow may be admitted.
_OWN_BOUNDS = (Bound.DEADLINE, Bound.TOKENS, Bound.ATTENTION)


class QueueKey(NamedTuple):
    """Requests with the same key wait one after the other."""

    client_id: str
    flow_id: str
    priority: Priority
    has_target: bool = False
    """Requests to score a target have a queue of their own."""

    @classmethod
    def of(cls, spec: Spec) -> QueueKey:
        """Builds the key of a request."""
        return cls(spec.client_id, spec.flow_id, spec.priority, isinstance(spec, ScoreSpec))


@dataclass(slots=True)
class _Refusal:
    full: QueueFull
    repeat_until_s: float
    free_s: float
    """When all refused requests that came back on time will be done."""


class RefusalCache:
    """The recent refusals of one engine; lives in the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts empty."""
        self._clock = clock
        self._refusals: dict[QueueKey, _Refusal] = {}

    def refused(self, key: QueueKey, full: QueueFull) -> QueueFull:
        """Keeps a refusal and makes the error for the caller.

        Args:
            key: The queue that refused the request.
            full: The engine's refusal, with the time until the requests before this one are done.
        """
        now_s = self._clock()
        repeat_s = min(MAX_REPEAT_S, _REPEAT_SHARE * full.retry_after_s)
        until_s = now_s if full.bound in _OWN_BOUNDS else now_s + repeat_s
        before = self._refusals.pop(key, None)
        refusal = _Refusal(full, until_s, before.free_s if before else now_s)
        self._refusals[key] = refusal
        if len(self._refusals) > MAX_KEYS:
            # The oldest one.
            del self._refusals[next(iter(self._refusals))]
        return _next_error(refusal, now_s)

    def check(self, key: QueueKey) -> None:
        """Accepts a request that the engine may admit.

        Raises:
            QueueFull: The engine has refused one with the same key a moment ago.
        """
        refusal = self._refusals.get(key)
        if refusal is None:
            return
        now_s = self._clock()
        if now_s < refusal.repeat_until_s:
            raise _next_error(refusal, now_s)


def _next_error(refusal: _Refusal, now_s: float) -> QueueFull:
    full = refusal.full
    free_s = max(now_s + full.retry_after_s, refusal.free_s)
    retry_s = min(max(free_s - now_s, MIN_RETRY_S), MAX_RETRY_S)
    refusal.free_s = now_s + retry_s + full.spacing_s
    return QueueFull(full.reason, retry_s, full.bound)
