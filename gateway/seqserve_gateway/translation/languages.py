"""The languages of a request, and those that the server translates; the server chooses models."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias
from weakref import WeakKeyDictionary

from seqserve import AsyncClient
from seqserve.errors import CallError
from seqserve.language_codes import AUTO, folded
from seqserve.results import DetectedLanguage
from seqserve_gateway.call import Call
from seqserve_gateway.translation.fields import refusal

Targets: TypeAlias = dict[str, list[str]]
"""Codes of target languages by the source language that is translated into them, in order."""
# Of a text, as many characters as the server looks at.
_LOOKED_AT = 1000
_FIELD = re.compile(r"(?:options\.)?(source|target)_language")
# A new model is known this soon.
_KEPT_S = 5.0
_KEPT: WeakKeyDictionary[AsyncClient, tuple[float, str | None, Targets]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Languages:
    """The source and the target language of a request."""

    source: str
    """Code of the source, or :data:`~seqserve.language_codes.AUTO`."""
    target: str
    """Code of the target."""
    source_field: str
    """Name of the source in the form, for errors."""
    target_field: str
    """Name of the target in the form."""

    def __post_init__(self) -> None:
        """Refuses a code that is empty, in place of which the server would choose a language.

        Raises:
            Failure: There is one.
        """
        for name, code in ((self.source_field, self.source), (self.target_field, self.target)):
            if not code:
                raise refusal(name, "is empty")

    def are_equal(self, source: str) -> bool:
        """Tells whether a source is in the target language already, whatever the regions are."""
        return folded(source).may_be(folded(self.target))

    async def source_of(self, call: Call, text: str) -> DetectedLanguage:
        """Returns the language of a text: that of the request, or else the most probable one.

        A text without words may be in any language. So it is in the target language, with
        confidence 0, as is one that does not tell its language.

        Raises:
            CallError: The server cannot detect languages.
            Failure: It does not know in which languages the text may be.
        """
        if self.source != AUTO:
            return DetectedLanguage(language=self.source, confidence=1.0)
        detected = []
        if text:
            sources = await targets_of(call)
            if not sources:
                reason = "is auto, but no model of the server declares its languages"
                raise refusal(self.source_field, reason)
            detected = await detect(call, text, *sources, self.target)
        return detected[0] if detected else DetectedLanguage(language=self.target, confidence=0.0)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Has the server's errors of languages name the fields of the form.

        Raises:
            Failure: In place of such an error.
        """
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
        text: The text, whose beginning counts.
        languages: Codes to choose from; all that models read, if there are none.

    Raises:
        CallError: The server cannot detect languages.
    """
    return await call.client.detect_language(text[:_LOOKED_AT], languages, timeout_s=call.left_s)


async def targets_of(call: Call) -> Targets:
    """Returns what the server translates; the answer for a caller is kept a while.

    Raises:
        CallError: The server does not list its pairs of languages.
    """
    now_s = time.monotonic()
    until_s, token, targets = _KEPT.get(call.client, (0.0, None, None))
    if targets is None or token != call.token or until_s < now_s:
        pairs = await call.client.language_pairs(timeout_s=call.left_s)
        codes = sorted((pair.source_language, pair.target_language) for pair in pairs)
        targets = {
            source: [target for _, target in group]
            for source, group in groupby(codes, itemgetter(0))
        }
        _KEPT[call.client] = (now_s + _KEPT_S, call.token, targets)
    return targets
