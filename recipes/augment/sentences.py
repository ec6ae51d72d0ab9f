"""Changes of a sentence that its translation makes too: names, numbers, its end, its letters."""

import random
import re
from collections.abc import Iterator

from recipes.augment.values import Language, Values, table

from seqserve_model.data import Pair

_WORD = re.compile(r"[\w'’-]+")
_NUMBER = re.compile(r"(?<![\w.,:/-])\d{1,4}(?![\w:/-]|[.,]\d)")
_END = re.compile(r"(?<=[^\W_])[.!?]?$")
# An end is drawn as often as it is listed.
_STATEMENT_ENDS = [*[""] * 5, *["!"] * 3, "?", "?", "!!", "...", "…", ";", ":", " .", " !", "?!"]
_QUESTION_ENDS = [*[""] * 4, ".", ".", "!", "??", "?!", " ?", "..."]
_COPIED = (*["placeholder"] * 3, "handle", "url", "email", "file", "code", "command", "version")
_TYPED = ("lower", "lower", "lower", "lower", "capitals", "title")


class Sentences:
    """Changes pairs at random; None where a pair has nothing to change."""

    def __init__(self, source: Language, target: Language, draw: random.Random) -> None:
        self._languages = source, target
        self._draw = draw
        self._values = Values(source, target, draw)
        self._known = _known_names()

    def names(self, pair: Pair) -> Pair | None:
        """Replaces known names by others, if the target has them as often."""
        genitive = self._languages[0].genitive[0]
        renamed = pair
        for word in dict.fromkeys(_WORD.findall(pair.source)):
            name = word.removesuffix(genitive)
            for kind, other in self._known.get(name, ()):
                renamed = self._renamed(renamed, (name, other), kind) or renamed
        return None if renamed == pair else renamed

    def numbers(self, pair: Pair) -> Pair | None:
        """Replaces the only number that both sides have by another."""
        words = [_WORD.findall(side) for side in pair]
        for side, language in zip(words, self._languages, strict=True):
            if language.no_numbers.intersection(side):
                return None
        digits = [tuple(_NUMBER.findall(side)) for side in pair]
        spelled = [
            tuple(word for word in side if word.lower() in language.number_words)
            for side, language in zip(words, self._languages, strict=True)
        ]
        match [*digits, *spelled]:
            case [(number,), (same,), (), ()] if number == same:
                # A year stays one, and a small number small.
                longer = 10 ** len(number)
                other = str(self._draw.randrange(longer // 10, longer))
                return Pair(*(_NUMBER.sub(other, side) for side in pair))
            case [(), (), (word,), (same,)] if self._is_one_number(word, same):
                numbers = self._values.value("number")
                old = re.compile(rf"(?<!\w)({word}|{same})(?!\w)")
                return Pair(*map(old.sub, numbers, pair))
        return None

    def ending(self, pair: Pair) -> Pair | None:
        """Ends both sides with another mark, several or none."""
        end = _END.search(pair.source)
        if not end or not _END.search(pair.target):
            return None
        mark = self._draw.choice(_QUESTION_ENDS if end[0] == "?" else _STATEMENT_ENDS)
        # Space before a mark is a slip of the typist's.
        return Pair(_END.sub(mark, pair.source), _END.sub(mark.lstrip(), pair.target))

    def letters(self, pair: Pair) -> Pair | None:
        """Types the source in small letters or as a title, or both sides in capitals."""
        typed = self._draw.choice(_TYPED)
        words = pair.source.split(" ")
        title = " ".join(word[:1].upper() + word[1:] for word in words)
        source = {"lower": pair.source.lower(), "capitals": pair.source.upper(), "title": title}[
            typed
        ]
        target = pair.target.upper() if typed == "capitals" else pair.target
        # Hangul has no other letters: of it nothing would tell the target's.
        return None if source == pair.source else Pair(source, target)

    def _is_one_number(self, word: str, other: str) -> bool:
        source, target = self._languages
        return source.number_words[word.lower()] == target.number_words[other.lower()]

    def _renamed(self, pair: Pair, names: tuple[str, str], kind: str) -> Pair | None:
        patterns = [
            re.compile(rf"(?<![\w-]){name}({re.escape(language.genitive[0])})?(?![\w-])")
            for name, language in zip(names, self._languages, strict=True)
        ]
        genitives = [pattern.findall(side) for pattern, side in zip(patterns, pair, strict=True)]
        if len(genitives[0]) != len(genitives[1]):
            return None
        is_inflected = any(genitives[0] + genitives[1])
        new = self._new_name(kind, is_inflected=is_inflected)
        return Pair(*self._with_name(pair, patterns, new))

    def _with_name(
        self, pair: Pair, patterns: list[re.Pattern[str]], names: tuple[str, str]
    ) -> Iterator[str]:
        for side, pattern, language, name in zip(
            pair, patterns, self._languages, names, strict=True
        ):
            forms = {"": name, language.genitive[0]: language.possessive(name)}
            yield pattern.sub(lambda place, forms=forms: forms[place[1] or ""], side)  # type: ignore[misc]

    def _new_name(self, kind: str, *, is_inflected: bool) -> tuple[str, str]:
        draw, values = self._draw, self._values
        chance = draw.random()
        if kind == "place":
            return values.value("place" if chance < 0.7 else "invented")
        # Some people are called by what no language translates, so that it is copied anywhere.
        if chance < 0.15 and not is_inflected:
            return values.value(draw.choice(_COPIED))
        if chance < 0.25:
            return values.value("full")
        return values.value(kind if chance < 0.6 else "invented")


def joined(pairs: list[Pair]) -> Pair:
    """Joins sentences to one text."""
    return Pair(*(" ".join(sides) for sides in zip(*pairs, strict=True)))


def _known_names() -> dict[str, list[tuple[str, str]]]:
    known: dict[str, list[tuple[str, str]]] = {}
    for kind, text in table("names.toml")["replaced"].items():
        for entry in text.split():
            name, _, other = entry.partition("=")
            known.setdefault(name, []).append((kind, other or name))
    return known
