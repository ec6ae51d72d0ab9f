"""Checks source and target texts before and after they are tokenized."""

from __future__ import annotations

from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.manifest import Manifest

MAX_SOURCES = 1024
"""Maximum number of sources in one call."""
MAX_CHARACTERS_PER_TOKEN = 32
"""A token rarely has more; a text that does is refused before it is tokenized."""
_TOO_LONG = "split it into sentences, or set options.segmentation"


def check_count(sources: int) -> None:
    """Checks the number of sources in a batch."""
    if not 1 <= sources <= MAX_SOURCES:
        raise InvalidRequest("sources", f"are {sources}; a call takes 1 to {MAX_SOURCES}")


def check_source(source: str, manifest: Manifest) -> None:
    """Checks before it is tokenized that a source is not empty or far too long."""
    check_not_empty(source)
    _check_length("source", source, manifest.limits.max_source_length, manifest, _TOO_LONG)


def check_not_empty(source: str) -> None:
    """Checks that a source has more than white space."""
    if not source.strip():
        raise InvalidRequest("source", "is empty")


def check_target(target: str, manifest: Manifest) -> None:
    """Checks before it is tokenized that a target, which may be empty, is not far too long."""
    _check_length("target", target, manifest.limits.max_target_length, manifest)


def _check_length(field: str, text: str, limit: int, manifest: Manifest, advice: str = "") -> None:
    if len(text) > limit * MAX_CHARACTERS_PER_TOKEN:
        told = f"has {len(text):,} characters; {manifest.label} takes at most {limit} tokens"
        raise InvalidRequest(field, f"{told}: {advice}" if advice else told)


def check_source_tokens(tokens: list[int], num_added: int, manifest: Manifest) -> None:
    """Checks that a source has not too many tokens, and more than the end token.

    Args:
        tokens: Those of the text.
        num_added: How many the model reads beside them.
        manifest: Has the limit.
    """
    limit, count = manifest.limits.max_source_length, len(tokens) + num_added
    if count > limit:
        added = "the end token" if not num_added else f"the end token and {num_added} of the model"
        raise InvalidRequest(
            "source",
            f"has {count} tokens with {added}; {manifest.label} reads at most {limit}: {_TOO_LONG}",
        )
    if len(tokens) < 2:
        raise InvalidRequest("source", "has no character that the model reads")


def check_target_tokens(tokens: list[int], manifest: Manifest) -> None:
    """Checks that a target has not too many tokens; the end token does not count."""
    limit = manifest.limits.max_target_length
    if len(tokens) - 1 > limit:
        raise InvalidRequest(
            "target", f"has {len(tokens) - 1} tokens; {manifest.label} writes at most {limit}"
        )
