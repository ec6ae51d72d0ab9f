"""Keywords of calls."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias, TypedDict

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
    """Name of the model; by default that of the languages, or else the server's default model."""
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
