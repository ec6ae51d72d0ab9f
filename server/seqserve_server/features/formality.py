"""Formality: an answer addresses its reader politely or familiarly, as German has Sie and du."""

import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import seqserve_server.text
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.limits import MAX_SUPPRESSED
from seqserve_server.contract.options import ANY_TOKEN, BEGIN, TokenIds
from seqserve_server.front.generate.records import Asked, Feature, Part

_OPPOSITE = {"more": "less", "less": "more"}
_BEAM_SIZE = 4
"""Beams of a greedy request: in one of them the verb fits the words that are left."""
_MOST_TOKENS = 3
"""Maximum tokens of a word; with more, the first ones often begin other words."""


def formality(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it and the words of its languages are known."""
    wish = asked.options.formality
    if not wish:
        return None
    source, target = asked.languages
    words = _table()["sources"].get(source), _table()["targets"].get(target)
    feature = _Formality(asked, *words, wish.removeprefix("prefer_")) if all(words) else None
    if feature is not None and feature.suppressed:
        return feature
    if wish.startswith("prefer_"):
        return None
    pair = f"from {source or 'any language'} to {target or 'any'}"
    reason = f"is {wish}, and {asked.model.manifest.label} has no forms {pair}"
    raise InvalidRequest(
        _Formality.field, f"{reason}; prefer_{wish} leaves these texts as they are"
    )


class _Formality(Feature):
    """Suppresses the other form's words, save those that may mean others than the reader."""

    field = "options.formality"

    def __init__(
        self, asked: Asked, source: dict[str, str], target: dict[str, str], wish: str
    ) -> None:
        tokenizer = asked.model.tokenizer
        own, shared = target[wish].split(), target["shared"].split()
        self.suppressed: list[TokenIds] = []
        self._beside_others: list[TokenIds] = []
        for word in _forms(target[_OPPOSITE[wish]]):
            ids = tuple(tokenizer.encode_target(word)[:-1])
            if word in own or not 1 <= len(ids) <= _MOST_TOKENS:
                continue
            self.suppressed.append(ids)
            if word not in shared:
                self._beside_others.append(ids)
            elif word.istitle() and len(ids) == 1:
                self._beside_others.append((ANY_TOKEN, *ids))
        self._others = re.compile(rf"\b(?:{source['others']})\b")
        self._is_order = re.compile(source["orders"].replace("|\n", ""))
        forms = target["orders"].split() if wish == "more" else []
        # They may be other words elsewhere: "Frage".
        texts = [*forms, *(f"Bitte {each.lower()}" for each in forms)]
        self._orders = [(BEGIN, *tokenizer.encode_target(text)[:-1]) for text in texts]
        self._max_rows = asked.model.engine.capacity.max_rows

    def read(self, part: Part) -> Part:
        decoding = part.decoding
        text = part.text.lower()
        words = self._beside_others if self._others.search(text) else self.suppressed
        if self._is_order.match(text):
            words = [*words, *self._orders]
        # The caller's own terms and prefix may have the other form.
        wanted = (decoding.prefix, *decoding.terms)
        suppressed = [ids for ids in words if not any(_has(each, ids) for each in wanted)]
        room = max(0, MAX_SUPPRESSED - len(decoding.suppressed))
        decoding = replace(decoding, suppressed=(*decoding.suppressed, *suppressed[:room]))
        is_greedy = decoding.beam_size == 1 and decoding.sampling is None
        if is_greedy and not decoding.return_alternatives:
            decoding = replace(decoding, beam_size=min(_BEAM_SIZE, self._max_rows))
        return part._replace(decoding=decoding)


def _forms(words: str) -> list[str]:
    return [form for word in words.split() for form in dict.fromkeys((word, word.capitalize()))]


def _has(ids: TokenIds, part: TokenIds) -> bool:
    part = part[part[0] < 0 :]
    return any(ids[at : at + len(part)] == part for at in range(len(ids)))


@cache
def _table() -> dict[str, Any]:
    path = Path(seqserve_server.text.__file__).with_name("formality.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))
