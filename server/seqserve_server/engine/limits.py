"""What bounds an engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What bounds the engine's memory and patience; fixed when it starts."""

    workers: int
    """Threads that run steps, each with slots of its own."""
    slots: int
    """Rows that may run at once, over all workers."""
    max_queue: int
    """Requests that may wait for a slot."""
    max_source_tokens_per_step: int
    """Source tokens that a worker encodes between two steps while rows are running."""
