"""Arguments of calls and of the client: keywords, defaults and checks."""

from collections.abc import AsyncIterable, Iterable
from enum import Enum
from typing import Any, TypeAlias, TypedDict, TypeVar

from seqserve.errors import invalid_argument
from seqserve.v1.generation_options import GenerationOptions


class Priority(Enum):
    """Order of requests while they wait."""

    NORMAL = "normal"
    """For clients that wait for the answer."""
    LOW = "low"
    """For background work: takes the slots that others leave, and at least one in sixteen."""


class ModelOptions(TypedDict, total=False):
    """Keywords of every call of a model; the server chooses what is left out or None."""

    model: str | None
    """Name of the model; by default the model of the languages, or else the server's default."""
    version: int | None
    """Version of the model; by default the highest one that is ready, or one that traffic weights
    choose."""


class SourceOptions(ModelOptions, total=False):
    """Keywords of every call with a source or a target; the server chooses what is left out."""

    source_language: str | None
    """Code of the language of the source; without a model, the languages choose it."""
    target_language: str | None
    """Code of the language of the target."""


class GenerateOptions(GenerationOptions, ModelOptions, total=False):
    """Keywords of every call that generates; the server chooses what is left out or None.

    Decoding is greedy unless ``beam_size`` or an option of sampling asks for something else; the
    server refuses both at once.
    """

    priority: Priority | None
    """Order of requests while they wait; normal by default."""


BulkSource: TypeAlias = str | tuple[str, GenerateOptions]
"""One of many sources of a call: a text, perhaps with options that it alone has."""


DEFAULT_TARGET = "localhost:50051"
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_CONCURRENCY = 32
MOST_CONNECTIONS = 8
"""Enough to reach most processes of a server that shares its port among four."""
BULK_CONCURRENCY = 256
"""More sources than a server runs at once, so that it never waits for the next one."""
MAX_MESSAGE_BYTES = 64 << 20
WINDOW = 4
"""Maximum number of sources between input and output for each call in flight, so that one slow
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
