"""Finds how the source of a request is divided into segments."""

from __future__ import annotations

from typing import NamedTuple

from seqserve.v1 import generation_pb2
from seqserve_server.contract.manifest import Manifest, Template
from seqserve_server.front.segmentation import Mode

EXCLUDED = ("target_prefix", "target_prefix_tokens")
"""Options that belong to one text, not to each of its segments."""

# Its rules are those of every language that the library does not know.
_DEFAULT_LANGUAGE = "en"


class Segmentation(NamedTuple):
    """How a source is divided."""

    mode: Mode
    language: str = _DEFAULT_LANGUAGE
    """Code of the language, of ISO 639, by whose rules sentences end."""


def segmentation_of(
    options: generation_pb2.GenerationOptions, manifest: Manifest
) -> Segmentation | None:
    """Returns how to divide the source of a request; None for not at all.

    The default of the model gives way to options that it does not go with.
    """
    given: str = options.segmentation
    if not given and not is_excluded(options):
        given = manifest.generation.get("segmentation", "")
    mode = Mode(given or Mode.NONE)
    return Segmentation(mode, _language(options, manifest)) if mode is not Mode.NONE else None


def is_excluded(options: generation_pb2.GenerationOptions) -> bool:
    """Tells whether a request sets an option that belongs to one text."""
    return any(getattr(options, name) for name in EXCLUDED)


def _language(options: generation_pb2.GenerationOptions, manifest: Manifest) -> str:
    code: str = options.segmentation_language
    if not code and options.source_language:
        code = _of_iso(options.source_language, manifest.template or Template())
    return code or manifest.generation.get("segmentation_language", _DEFAULT_LANGUAGE)


def _of_iso(code: str, template: Template) -> str:
    """Finds the code of ISO 639 that stands for a model's own, such as de for deu_Latn."""
    aliases = [alias for alias, known in template.aliases.items() if known == code]
    return min([code, *aliases], key=len)
