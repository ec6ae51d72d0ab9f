"""What bounds an engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_TOP_K = 64
"""Best words that a step can list for each row."""
MAX_SUPPRESSED = 256
"""Tokens and sequences that a request can have suppressed, the unknown token beside them."""
MAX_END_TOKENS = 64
"""Tokens that can end the hypotheses of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """What bounds a queue, and so how long its requests wait."""

    max_queue: int
    """Requests that may wait."""
    max_queue_tokens: float = math.inf
    """Source tokens that may wait; more only of a request by itself."""
    max_queue_s: float | None = math.inf
    """How long a request of normal priority may be expected to wait; None for as long as makes
    sense, see :mod:`~seqserve_server.engine.queue.congestion`."""
    caller_share: float = 1.0
    """Part of the queue that a caller who is alone may hold, above 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits(QueueLimits):
    """What bounds the engine's memory and patience; fixed when it starts."""

    workers: int
    """Threads that run steps, each with slots of its own."""
    slots: int
    """Rows that may run at once, over all workers."""
    max_source_tokens_per_step: int
    """Source tokens that a worker encodes between two steps while rows are running."""
