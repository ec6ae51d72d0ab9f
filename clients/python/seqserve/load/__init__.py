"""Load and its latencies: open and closed loops over gRPC and HTTP, free of coordinated omission.

A time starts when a request is due, not when it is sent. Otherwise the wait of a request that a
slow server delays would be missing.

Here is one request as its caller saw it, and percentiles of many.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self

REFUSALS = {"RESOURCE_EXHAUSTED", "HTTP 429"}
"""Statuses by which a server says that it has too much to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Received:
    gaps_s: tuple[float, ...] = ()
    """Seconds between the pieces of a stream."""
    tokens: int = 0
    """Tokens of the target; 0 if the server does not report them."""
    source_tokens: int = 0
    error: str = ""
    """Name of the status; empty where it went well."""
    details: str = ""
    """The server's description of the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(_Received):
    """The answer for one text; times are of :func:`time.perf_counter`."""

    first_at_s: float = math.inf
    """The first message; the only one, where the answer is not streamed."""

    @classmethod
    def at(cls, moments_s: Sequence[float], tokens: int = 0, source_tokens: int = 0) -> Self:
        """Returns the reply whose pieces came at some moments; without a piece it came now."""
        return cls(
            first_at_s=moments_s[0] if moments_s else time.perf_counter(),
            gaps_s=tuple(after - before for before, after in pairwise(moments_s)),
            tokens=tokens,
            source_tokens=source_tokens,
        )


class Caller(Protocol):
    """Calls one server; connects when it is entered, and can be pickled before."""

    async def __aenter__(self) -> Self:
        """Connects."""

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""

    async def send(self, source: str, timeout_s: float) -> Reply:
        """Sends a text once and waits for the end of its answer, which may be an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(_Received):
    """One request. Times are seconds since it was due."""

    due_s: float
    """When it was due, from the beginning of the run."""
    late_s: float = 0.0
    """How late the load generator was; the wait for a place among those in flight comes after."""
    sent_s: float
    first_s: float = math.inf
    """The first message; the only one, where the answer is not streamed."""
    total_s: float = math.inf
    """The complete answer; infinite where it failed."""


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the least value that a share of all values does not exceed (nearest rank)."""
    rank = math.ceil(share * len(values))
    return sorted(values)[max(rank, 1) - 1]
