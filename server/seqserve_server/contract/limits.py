"""Settings of a server: its provider, and bounds of requests, of the queue and of memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

MAX_TOP_K = 64
"""Top-k tokens that a step returns for each row, at most."""
MAX_SUPPRESSED = 512
"""Suppressed tokens and sequences of one request, besides the unknown token."""
MAX_END_TOKENS = 64
"""Token ids of one request that end a hypothesis."""
MAX_SOURCES = 1024
"""Sources of one call."""
DETECTED_CHARACTERS = 1000
"""Characters of a text that tell its language."""


class Provider(Enum):
    """An execution provider of ONNX Runtime."""

    CPU = "cpu"
    CUDA = "cuda"


class CacheScope(Enum):
    """Who gets a cached answer."""

    CALLER = "caller"
    """The client that was answered before."""
    SERVER = "server"
    """Every client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Bounds of the requests that wait, and of their waiting time."""

    max_queue: int
    """Requests that may wait, and as many sources of bulk calls and batches."""
    max_queue_tokens: float = math.inf
    """Source tokens that may wait; a request that is alone may have more."""
    max_queue_s: float | None = math.inf
    """Longest expected wait of a request of normal priority; None for 0.3 s or
    half of the time that requests take, see :mod:`~seqserve_server.engine.queue.request_queue`."""
    caller_share: float = 1.0
    """Part of the room that one client may have if it is alone, above 0 up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits(QueueLimits):
    """Bounds of an engine; fixed when it starts."""

    workers: int
    """Threads that run steps, each with its own slots."""
    slots: int
    """Rows that may run at once, over all workers."""
    max_source_tokens_per_step: int
    """Source tokens that a worker encodes between two steps while rows run."""

    def shares(self, engines: int) -> list[EngineLimits]:
        """Divides the bounds among engines, no more than there are workers; rounds up."""
        return [
            replace(
                self,
                workers=workers,
                slots=-(-self.slots // engines),
                max_queue=-(-self.max_queue // engines),
                max_queue_tokens=self.max_queue_tokens / engines,
            )
            for workers in worker_shares(self.workers, engines)
        ]


def worker_shares(workers: int, engines: int) -> list[int]:
    """Divides workers among engines; the first ones have one more where some are left over."""
    return [-(-(workers - index) // engines) for index in range(engines)]


RAISE_THREADS = "raise it: `ulimit -u`, TasksMax= in systemd, --pids-limit of a container"
"""Advice if the system's limit on threads is too low."""
