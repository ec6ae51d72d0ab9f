"""An engine as the front sees it, whichever processes it runs in; used in the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.messages import Ready, StatsReply
from seqserve_server.contract.request import Spec
from seqserve_server.front.engine_client.refusals import RefusalCache

Receive: TypeAlias = Callable[[Event, Timeline | None], None]
"""Receives the events of a request; the last has its timeline, unless the engine died."""


class AnsweringEngine(Protocol):
    """An engine that answers requests, in this process or in others."""

    capacity: Ready
    """What it can hold, once it is loaded."""
    refusals: RefusalCache
    """Its recent refusals."""

    @property
    def pending(self) -> int:
        """Requests that have not ended."""

    def submit(self, spec: Spec, receive: Receive) -> int:
        """Begins a request, whose events ``receive`` gets in the loop.

        Returns:
            The request id, for :meth:`cancel`.

        Raises:
            Draining: No new requests are taken.
            ModelUnavailable: Every process has ended and is being restarted.
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

    def request_stats(self) -> Future[StatsReply]:
        """Requests new statistics; from any thread."""

    async def newest_stats(self, *, when_idle: bool = False) -> StatsReply:
        """Requests new statistics; returns the last known ones of a process that does not answer.

        Args:
            when_idle: Wait until no row is left and all rows are counted. A cancelled call has
                ended at once, but is counted when its rows leave.
        """

    def watch(self, on_change: Callable[[], None]) -> None:
        """Calls ``on_change`` when :attr:`status` may have changed."""

    async def start(self) -> None:
        """Starts to exchange messages with processes that are ready."""

    def close(self) -> None:
        """Refuses new requests from now on."""

    async def stop(self) -> None:
        """Ends all processes at the same time; unfinished requests fail."""

    def terminate(self) -> None:
        """Ends all processes; blocks."""
