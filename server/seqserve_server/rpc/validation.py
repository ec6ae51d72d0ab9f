"""Checks what a caller sent, field by field, before anything is computed."""

from __future__ import annotations

from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from seqserve.v1 import generation_pb2
from seqserve_server.engine.request import DecodingOptions
from seqserve_server.errors import InvalidRequest
from seqserve_server.manifest import Manifest

# A token rarely has more characters; a longer text is refused before it is tokenised.
_MOST_CHARACTERS_PER_TOKEN = 32


def check_source(source: str, manifest: Manifest) -> None:
    """Refuses a source that need not be tokenised to be known as wrong.

    Raises:
        InvalidRequest: It is empty or far too long.
    """
    if not source.strip():
        raise InvalidRequest("source", "is empty")
    limit = manifest.limits.max_source_length
    if len(source) > limit * _MOST_CHARACTERS_PER_TOKEN:
        raise InvalidRequest(
            "source",
            f"has {len(source):,} characters; {manifest.label} reads at most {limit} tokens",
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


def decoding_options(
    options: generation_pb2.GenerationOptions, manifest: Manifest
) -> DecodingOptions:
    """Checks options and fills in the model's defaults.

    Raises:
        InvalidRequest: One is unknown or out of its range, or they contradict each other.
    """
    # Options change the answer, so one from a newer client must not be passed over in silence.
    unknown_fields: Any = UnknownFieldSet(options)
    for unknown in unknown_fields:
        raise InvalidRequest(
            "options", f"field {unknown.field_number} is not known to this server; upgrade it"
        )
    limit = manifest.limits.max_target_length
    longest, shortest = limit, 0
    if options.HasField("max_decoding_length"):
        longest = options.max_decoding_length
        if not 1 <= longest <= limit:
            raise InvalidRequest(
                "options.max_decoding_length",
                f"is {longest}; {manifest.label} takes 1 to {limit}",
            )
    if options.HasField("min_decoding_length"):
        shortest = options.min_decoding_length
        if not 0 <= shortest <= longest:
            raise InvalidRequest(
                "options.min_decoding_length",
                f"is {shortest}; it must be 0 to max_decoding_length, which is {longest}",
            )
    return DecodingOptions(max_decoding_length=longest, min_decoding_length=shortest)
