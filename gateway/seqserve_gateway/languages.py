"""The languages of a request, and the pairs that the server translates; it chooses the models."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from seqserve.errors import CallError
from seqserve.language_codes import AUTO, folded
from seqserve.model import LanguagePair
from seqserve.results import DetectedLanguage
from seqserve_gateway import DATA
from seqserve_gateway.call import Call, in_window
from seqserve_gateway.fields import refusal

Targets: TypeAlias = dict[str, list[str]]
"""Codes of target languages by the source language that is translated into them, in order."""
_NAMES: dict[str, str] = json.loads((DATA / "languages.json").read_text("utf-8"))
_DETECTION_CHARS = 1000
"""The server looks at no more of a text."""
_DETECTIONS = 8
"""Texts of an array whose languages are detected at a time."""
_FIELD = re.compile(r"(?:options\.)?(source|target)_language")


@dataclass(frozen=True, slots=True)
class Languages:
    """The source and the target language of a request."""

    source: str
    """Code of the source, or :data:`~seqserve.language_codes.AUTO`."""
    target: str
    """Code of the target."""
    source_field: str = "source"
    """Name of the source in the form, for errors."""
    target_field: str = "target"
    """Name of the target in the form."""

    def __post_init__(self) -> None:
        """Refuses an empty code, for which the server would choose a language."""
        for name, code in ((self.source_field, self.source), (self.target_field, self.target)):
            if not code:
                raise refusal(name, "is empty")

    def are_equal(self, source: str) -> bool:
        """Tells whether a source is already in the target language, whatever the regions are."""
        return folded(source).may_be(folded(self.target))

    async def sources_of(self, call: Call, texts: Sequence[str]) -> list[DetectedLanguage]:
        """Returns the language of each text: that of the request, or else the most probable one.

        A text without words may be in any language, so it counts as one in the target language,
        with confidence 0, as does a text whose language cannot be told.

        Raises:
            CallError: The server cannot detect languages.
            Failure: The server declares no languages to choose from.
        """
        if self.source != AUTO:
            return [DetectedLanguage(language=self.source, confidence=1.0)] * len(texts)
        sources = await call.recent(targets_of) if any(texts) else {}
        if any(texts) and not sources:
            reason = "is auto, but no model of the server declares its languages"
            raise refusal(self.source_field, reason)

        async def detected(text: str) -> DetectedLanguage:
            found = await detect(call, text, *sources, self.target) if text else []
            return found[0] if found else DetectedLanguage(language=self.target, confidence=0.0)

        return await in_window(detected, texts, _DETECTIONS)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Makes the server's errors about languages name the fields of the form."""
        try:
            yield
        except CallError as error:
            fields = {"source": self.source_field, "target": self.target_field}
            details = _FIELD.sub(lambda match: fields[match[1]], error.details)
            if error.reason == "NO_DETECTOR":
                raise refusal(self.source_field, details) from None
            if match := _FIELD.fullmatch(error.field):
                name = fields[match[1]]
                raise refusal(name, details.removeprefix(f"{name}: ")) from None
            raise


async def detect(call: Call, text: str, *languages: str) -> list[DetectedLanguage]:
    """Returns the languages that a text may be in, the most probable one first.

    Args:
        call: The request.
        text: The text, of which the beginning counts.
        languages: Codes to choose from; all that models read, if there are none.

    Raises:
        CallError: The server cannot detect languages.
    """
    beginning = text[:_DETECTION_CHARS]
    return await call.client.detect_language(beginning, languages, timeout_s=call.left_s)


async def targets_of(call: Call) -> Targets:
    """Lists what the server translates; for ``call.recent``, because there may be many pairs.

    Raises:
        CallError: The server does not list its pairs of languages.
    """
    pairs = await call.client.language_pairs(timeout_s=call.left_s)
    return await asyncio.to_thread(_grouped, pairs)


def _grouped(pairs: Iterable[LanguagePair]) -> Targets:
    targets: Targets = {}
    for pair in pairs:
        # Each of many pairs has codes of its own; one object for each language is kept.
        targets.setdefault(sys.intern(pair.source_language), []).append(
            sys.intern(pair.target_language)
        )
    return {source: sorted(targets[source]) for source in sorted(targets)}


def name_of(code: str) -> str:
    """Returns the English name of a language; the code itself if it is unknown."""
    return _NAMES.get(folded(code).name, code)
