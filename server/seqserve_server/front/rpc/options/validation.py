"""Checks the texts that a caller sent, before anything is computed."""

from __future__ import annotations

from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.manifest import Manifest

MOST_SOURCES = 1024
"""Sources that one call takes."""
# A token rarely has more characters; a longer text is refused before it is tokenised.
_MOST_CHARACTERS_PER_TOKEN = 32


def check_count(sources: int) -> None:
    """Refuses a batch of no source, or of more than :data:`MOST_SOURCES`.

    Raises:
        InvalidRequest: It is one.
    """
    if not 1 <= sources <= MOST_SOURCES:
        raise InvalidRequest("sources", f"are {sources}; a call takes 1 to {MOST_SOURCES}")


def check_source(source: str, manifest: Manifest) -> None:
    """Refuses a source that need not be tokenised to be known as wrong.

    Raises:
        InvalidRequest: It is empty or far too long.
    """
    if not source.strip():
        raise InvalidRequest("source", "is empty")
    _check_length("source", source, manifest.limits.max_source_length, manifest)


def check_target(target: str, manifest: Manifest) -> None:
    """Refuses a target that need not be tokenised to be known as wrong; an empty one is fine.

    Raises:
        InvalidRequest: It is far too long.
    """
    _check_length("target", target, manifest.limits.max_target_length, manifest)


def _check_length(field: str, text: str, limit: int, manifest: Manifest) -> None:
    if len(text) > limit * _MOST_CHARACTERS_PER_TOKEN:
        raise InvalidRequest(
            field, f"has {len(text):,} characters; {manifest.label} takes at most {limit} tokens"
        )


def check_source_tokens(tokens: list[int], manifest: Manifest) -> None:
    """Refuses a source with more tokens than the model reads, or none but the end token.

    Raises:
        InvalidRequest: It is one.
    """
    limit = manifest.limits.max_source_length
    if len(tokens) > limit:
        raise InvalidRequest(
            "source",
            f"has {len(tokens)} tokens, the end token counted; {manifest.label} reads at most"
            f" {limit}: split it into sentences",
        )
    if len(tokens) < 2:
        raise InvalidRequest("source", "has no character that the model reads")


def check_target_tokens(tokens: list[int], manifest: Manifest) -> None:
    """Refuses a target with more tokens than the model writes, the end token not counted.

    Raises:
        InvalidRequest: It is one.
    """
    limit = manifest.limits.max_target_length
    if len(tokens) - 1 > limit:
        raise InvalidRequest(
            "target", f"has {len(tokens) - 1} tokens; {manifest.label} writes at most {limit}"
        )
