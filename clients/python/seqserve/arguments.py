"""Arguments of the client itself: their defaults, and checks that name the wrong one."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import Any, TypeVar

from seqserve.errors import invalid_argument

DEFAULT_TARGET = "localhost:50051"
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_CONCURRENCY = 32
BULK_CONCURRENCY = 256
"""More sources than a server runs at once, so that it never waits for the next one."""
MAX_MESSAGE_BYTES = 64 << 20
WINDOW = 4
"""Maximum number of sources between input and output for each call under way, so that one slow
answer delays few others."""

S = TypeVar("S", bound=Iterable[Any] | AsyncIterable[Any])


def checked_concurrency(concurrency: int) -> int:
    """Returns a concurrency, which must be at least 1."""
    if concurrency < 1:
        raise invalid_argument("concurrency", f"{concurrency} is less than 1")
    return concurrency


def checked_sources(sources: S) -> S:
    """Returns sources, which must not be one text: its characters would pass for sources."""
    if isinstance(sources, str | bytes):
        raise invalid_argument("sources", f"{sources!r:.80} is one text; give a list of texts")
    return sources
