"""Keywords of the calls that generate."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from seqserve.v1.generation_options import GenerationOptions


class Priority(Enum):
    """Order of requests while they wait."""

    NORMAL = "normal"
    """For clients that wait for the answer."""
    LOW = "low"
    """For background work: takes the slots that others leave, and at least one in sixteen."""


class GenerateOptions(GenerationOptions, total=False):
    """Keywords of every call that generates; the server chooses what is left out or None.

    Decoding is greedy unless ``beam_size`` or an option of sampling asks for something else; the
    server refuses both at once.
    """

    model: str | None
    """Name of the model; by default the server's default model."""
    version: int | None
    """Version of the model; by default the highest one that is ready, or one that traffic weights
    choose."""
    priority: Priority | None
    """Order of requests while they wait; normal by default."""


BulkSource: TypeAlias = str | tuple[str, GenerateOptions]
"""One of many sources of a call: a text, perhaps with options that it alone has."""
