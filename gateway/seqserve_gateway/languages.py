"""The languages of texts, and the pairs that the server translates; it chooses the models."""

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from seqserve.language_codes import AUTO, folded
from seqserve.model import LanguagePair
from seqserve.results import DetectedLanguage
from seqserve_gateway import RESOURCES
from seqserve_gateway.call import Call
from seqserve_gateway.failure import refusal

Targets: TypeAlias = dict[str, list[str]]
"""Codes of target languages by the source language that is translated into them, in order."""
DETECTION_CHARS = 1000
"""The server detects a language by no more of a text."""
FIELDS = ("source_language", "target_language")
"""Names of the languages in ``seqserve.v1``; an error about one names the field of the form."""
_NAMES: dict[str, str] = json.loads((RESOURCES / "languages.json").read_text("utf-8"))
_DETECTIONS = 8
"""Texts of an array whose languages are detected at a time."""


async def sources_of(
    call: Call, texts: Sequence[str], source: str, target: str
) -> list[DetectedLanguage]:
    """Returns the language of each text: the source, or if it is AUTO, the most probable one.

    A text without words may be in any language, so it counts as one in the target language, with
    confidence 0, as does a text whose language cannot be told.
    """
    if source != AUTO:
        return [DetectedLanguage(language=source, confidence=1.0)] * len(texts)
    known = await call.recent(targets_of) if any(texts) else {}
    if any(texts) and not known:
        raise refusal(FIELDS[0], "is auto, but no model of the server declares its languages")

    async def detected(text: str) -> DetectedLanguage:
        beginning, codes = text[:DETECTION_CHARS], [*known, target]
        found = beginning and await call.client.detect_language(
            beginning, codes, timeout_s=call.left_s
        )
        return found[0] if found else DetectedLanguage(language=target, confidence=0.0)

    return await call.in_turns(detected, texts, _DETECTIONS)


async def check_target(call: Call, source: str, target: str) -> None:
    """Refuses an unknown target language, as the server does when it gets a text."""
    known = await call.recent(targets_of)
    codes = {*known, *chain(*known.values())}
    if known and not any(folded(code).may_be(folded(target)) for code in codes | {source} - {AUTO}):
        models = f"the models know {', '.join(sorted(codes))}"
        raise refusal(FIELDS[1], f"no model writes {target!r:.80}; {models}")


async def targets_of(call: Call) -> Targets:
    """Lists what the server translates; for ``call.recent``, because there may be many pairs."""
    pairs = await call.client.language_pairs(timeout_s=call.left_s)
    return await asyncio.to_thread(_grouped, pairs)


def _grouped(pairs: Iterable[LanguagePair]) -> Targets:
    targets: Targets = {}
    for pair in pairs:
        # Share one object between the many pairs of a language.
        source, target = sys.intern(pair.source_language), sys.intern(pair.target_language)
        targets.setdefault(source, []).append(target)
    return {source: sorted(targets[source]) for source in sorted(targets)}


def name_of(code: str) -> str:
    """Returns the English name of a language; the code itself if it is unknown."""
    return _NAMES.get(folded(code).name, code)


def names_of(source: str, target: str) -> dict[str, str]:
    """Returns a form's names of both languages, for ``Form.names``."""
    names = dict(zip(FIELDS, (source, target), strict=True))
    return names | {f"options.{field}": name for field, name in names.items()}
