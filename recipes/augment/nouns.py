"""Nouns and adjectives in the slots of a template, each declined as its language does it.

A slot has a determiner, an adjective and a noun, each but one of them at will: ``{the thing}``,
``{a colour thing2}``, ``{my things}``, ``{mood}``. Nouns and adjectives are named by a kind of
theirs. German names a determiner by its masculine form: ``{einen colour thing2}``, and a pronoun
in place of a noun, after a mark: ``{~ihn thing2}``.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from recipes.augment.values import records

from seqserve_model.data import Pair

Row = Mapping[str, str]

_SLOT = re.compile(r"\{([^{}\d]+)(\d?)\}")
# Written with a vowel and spoken with a consonant, or the other way round.
_SPOKEN = re.compile(r"(?!uni|use|USB|one|Euro)[aeiouAEIOU]|hour|honest|MP3")
_GENDERS = {"m": 0, "w": 0, "f": 1, "n": 2}
_STEMS = {
    "*": ("ein", "kein", "mein", "dein", "sein", "ihr", "Ihr", "unser"),
    "+": ("dies", "jed", "welch"),
}


class Nouns:
    """Draws nouns and adjectives for two languages from one generator of random numbers."""

    def __init__(self, source: str, target: str, draw: random.Random) -> None:
        self._codes = source, target
        self._draw = draw
        self._nouns = _by_kind("nouns.tsv")
        self._adjectives = _by_kind("adjectives.tsv")

    def pair(self, template: tuple[str, str]) -> Pair:
        """Fills the slots of nouns and adjectives alike, and leaves the others."""
        drawn: dict[str, Row] = {}
        source, target = (
            _SLOT.sub(lambda slot, code=code: self._written(code, slot, drawn), side)  # type: ignore[misc]
            for code, side in zip(self._codes, template, strict=True)
        )
        return Pair(source, target)

    def _written(self, code: str, slot: re.Match[str], drawn: dict[str, Row]) -> str:
        text, number = slot.groups()
        *words, kind = text.split()
        kind = kind.lower()
        if kind in self._adjectives:
            return _capital(self._drawn(self._adjectives, kind, number, drawn)[code], text)
        is_plural = kind not in self._nouns
        kind = kind.removesuffix("s") if is_plural else kind
        if kind not in self._nouns:
            return slot[0]
        noun = self._drawn(self._nouns, kind, number, drawn)
        adjective = None
        if words and words[-1].lower() in self._adjectives:
            adjective = self._drawn(self._adjectives, words.pop().lower(), number, drawn)
        return _capital(_GRAMMARS[code](" ".join(words), adjective, noun, is_plural), text)

    def _drawn(
        self, table: Mapping[str, list[Row]], kind: str, number: str, drawn: dict[str, Row]
    ) -> Row:
        while kind + number not in drawn:
            row = self._draw.choice(table[kind])
            if not any(
                row[code] == other[code] for other in drawn.values() for code in self._codes
            ):
                drawn[kind + number] = row
        return drawn[kind + number]


def english(determiner: str, adjective: Row | None, noun: Row, is_plural: bool) -> str:
    """Writes a noun with its determiner and adjective."""
    words = [adjective["en"]] if adjective else []
    words.append(noun["en_plural" if is_plural else "en"])
    if determiner.lower() == "a" and _SPOKEN.match(words[0]):
        determiner += "n"
    return " ".join(filter(None, [determiner, *words]))


def german(determiner: str, adjective: Row | None, noun: Row, is_plural: bool) -> str:
    """Declines a noun, and before it an adjective by what the determiner leaves to it."""
    determiners = _determiners()
    is_pronoun = determiner.startswith("~")
    determiner = determiner.removeprefix("~")
    slot = (is_plural, determiner)
    # "Ihr" has a capital anywhere.
    row = determiners[slot if slot in determiners else (is_plural, _small(determiner))]
    endings = row["adjective"].split()
    words = [row[noun["gender"].replace("w", "m")]]
    if adjective:
        ending = endings[0 if is_plural else _GENDERS[noun["gender"]]]
        words.append((adjective["de_stem"] or adjective["de"]) + ending)
    if not is_pronoun:
        words.append(_plural(noun, row) if is_plural else _singular(noun, endings[0]))
    return " ".join(filter(None, words))


def _singular(noun: Row, masculine: str) -> str:
    # A weak noun is its plural in all cases but the first, in which an adjective has no n or m.
    return noun["de_plural" if noun["gender"] == "w" and masculine[-1] in "nm" else "de"]


def _plural(noun: Row, determiner: Row) -> str:
    plural = noun["de_plural"]
    is_dative = determiner["slot"].endswith("n")
    return plural + "n" if is_dative and plural[-1] not in "ns" else plural


_GRAMMARS: Mapping[str, Callable[[str, Row | None, Row, bool], str]] = {
    "en": english,
    "de": german,
}


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def _capital(text: str, slot: str) -> str:
    return text[:1].upper() + text[1:] if slot.lstrip("~")[0].isupper() else text


@cache
def _by_kind(name: str) -> Mapping[str, list[Row]]:
    by_kind: dict[str, list[Row]] = {}
    for row in records(name):
        for kind in row["kind"].split():
            by_kind.setdefault(kind, []).append(row)
    return by_kind


@cache
def _determiners() -> Mapping[tuple[bool, str], Row]:
    return {
        (row["number"] == "many", row["slot"]): row
        for pattern in records("german.tsv")
        for row in _of_each_stem(pattern)
    }


def _of_each_stem(pattern: Row) -> Iterator[Row]:
    mark = pattern["slot"][:1]
    stems: Iterable[str] = _STEMS.get(mark, [""])
    for stem in stems:
        yield {name: text.replace(mark, stem) if stem else text for name, text in pattern.items()}
