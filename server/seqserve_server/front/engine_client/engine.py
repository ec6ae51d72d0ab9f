"""An engine as the front sees it, whichever processes it runs in; used in the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.request import Priority, ScoreSpec, Spec
from seqserve_server.contract.stats import Ready, StatsReply

Receive: TypeAlias = Callable[[Event, Timeline | None], None]
"""Receives the events of a request; the last has its timeline, unless the engine died."""


class AnsweringEngine(Protocol):
    """An engine that answers requests, in this process or in others."""

    capacity: Ready
    refusals: RefusalCache

    @property
    def pending(self) -> int:
        """Requests that have not ended."""

    def submit(self, spec: Spec, receive: Receive) -> int:
        """Begins a request, whose events ``receive`` gets in the loop; returns its id.

        Raises Draining if no requests are taken, and ModelUnavailable if every process restarts.
        """

    def cancel(self, request_id: int, *, is_late: bool = False) -> None:
        """Cancels a request; no event follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """The state of one engine process, or of all processes of a version."""

    is_up: bool
    """Whether requests can be taken."""
    is_ready: bool
    """Whether requests can be taken by a process that has not failed again and again."""
    last_error: str
    """Why no process is ready; empty if one is."""
    restarts: int
    """Starts after the first one of each process, whether or not they succeeded."""
    pids: tuple[int, ...]
    """Ids of the processes that there are now."""

    @classmethod
    def total(cls, engines: Sequence[EngineStatus]) -> EngineStatus:
        """Adds up the processes of one version."""
        is_ready = any(engine.is_ready for engine in engines)
        return cls(
            is_up=any(engine.is_up for engine in engines),
            is_ready=is_ready,
            last_error="" if is_ready else engines[0].last_error,
            restarts=sum(engine.restarts for engine in engines),
            pids=tuple(pid for engine in engines for pid in engine.pids),
        )


class ServingEngine(AnsweringEngine, Protocol):
    """The engine of a loaded version, in processes that are restarted when they fail."""

    def __len__(self) -> int:
        """Counts the processes, including those that are being restarted."""

    @property
    def status(self) -> EngineStatus:
        """The state of all processes together; may be read from any thread."""

    @property
    def last_reply(self) -> StatsReply:
        """The newest statistics of all processes together."""

    def request_stats(self) -> list[Future[StatsReply]]:
        """Requests new statistics from each process; from any thread."""

    async def newest_stats(self, *, when_idle: bool = False) -> StatsReply:
        """Requests new statistics; returns the last known ones of a process that does not answer.

        With ``when_idle`` it waits until no row runs, because cancelled ones count when they leave.
        """

    def close(self) -> None:
        """Refuses new requests from now on."""

    async def stop(self) -> None:
        """Ends all processes at the same time; unfinished requests fail."""


MIN_RETRY_S = 0.05
MAX_RETRY_S = 30.0
MAX_KEYS = 1024
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
    """Requests to score a target have a separate queue."""

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
        self._clock = clock
        self._refusals: dict[QueueKey, _Refusal] = {}

    def refused(self, key: QueueKey, full: QueueFull) -> QueueFull:
        """Keeps the engine's refusal; returns the error for the caller."""
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
        """Raises QueueFull if the engine has refused a request with the same key a moment ago."""
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
