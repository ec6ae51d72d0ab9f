"""The state of the engine processes of a version, as health, metrics and logs report it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
