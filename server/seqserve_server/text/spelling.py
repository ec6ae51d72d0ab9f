"""Spells a text as a vocabulary can read it, and knows where each character comes from.

Texts of the Web and of PDFs have characters that look like others or like nothing, and that cut a
word into tokens that the model has never seen together: "cof" + soft hyphen + "fee" is no coffee.

- Marks of layout, such as soft hyphens and marks of direction, are left out.
- Joiners and variation selectors stay where the vocabulary has them: Persian, Hindi and emoji do
  not mean the same without them.
- A letter and its marks become one character where the vocabulary has it (NFC), and a compatibility
  character, such as a ligature, becomes those that it stands for if the vocabulary lacks it.

All other texts stay as they are. Source: The Unicode Standard, chapter 23.2, "Layout Controls", and
annex 15, "Unicode Normalization Forms".
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

# Scripts without spaces between words, where U+200B may be the only border of a word.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_LAYOUT = re.compile(
    r"[\u00ad\u034f\u061c\u180e\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
    rf"|(?<![{_UNSPACED}])\u200b|\u200b(?![{_UNSPACED}])"
)
_JOINERS = frozenset("\u200b\u200c\u200d" + "".join(map(chr, range(0xFE00, 0xFE10))))
# How a compatibility character differs from its equivalent, if a reader sees no difference.
_ALIKE = frozenset(["font", "noBreak", "initial", "medial", "final", "isolated", "wide", "narrow"])
_VOICING = "\uff9e\uff9f"
# Vowels and final consonants of Hangul that follow a consonant.
_JAMO = range(0x1160, 0x1200)
# Stream-safe text (annex 15, section 13) has no more marks on a character.
_MAX_CLUSTER = 31
# Characters whose form is remembered; callers choose which ones they send.
_MAX_CACHED = 20_000


class Spelled(NamedTuple):
    """A text as the vocabulary reads it."""

    text: str
    origins: list[tuple[int, int]] | None = None
    """Where the source of each of its characters begins and ends in the original, in code
    points; None if the text is the original."""

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Returns the place in the original of a part of the text."""
        origins = self.origins
        if origins is None:
            return begin, end
        if begin < end:
            return origins[begin][0], origins[end - 1][1]
        at = origins[begin][0] if begin < len(origins) else origins[-1][1] if origins else 0
        return at, at


class Spelling:
    """How the texts of a vocabulary are spelled."""

    def __init__(self, reads: Callable[[str], bool]) -> None:
        """Takes a function that tells whether the vocabulary has a character."""
        self._form = lru_cache(_MAX_CACHED)(partial(_form, reads))

    def __call__(self, text: str) -> Spelled:
        """Spells a text."""
        if text.isascii() or self._is_plain(text):
            return Spelled(text)
        hidden = {match.start() for match in _LAYOUT.finditer(text)}
        places = [at for at in range(len(text)) if at not in hidden]
        visible = "".join(text[at] for at in places)
        spelled: list[str] = []
        origins: list[tuple[int, int]] = []
        for begin, end in _clusters(visible):
            cluster = visible[begin:end]
            form = self._form(cluster)
            if form == cluster:
                origins += [(at, at + 1) for at in places[begin:end]]
            else:
                origins += [(places[begin], places[end - 1] + 1)] * len(form)
            spelled.append(form)
        return Spelled("".join(spelled), origins)

    def _is_plain(self, text: str) -> bool:
        return (
            not _LAYOUT.search(text)
            and all(self._form(character) == character for character in set(text))
            and unicodedata.is_normalized("NFC", text)
        )


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Yields where a character begins, and where the marks on it end."""
    begin = 0
    for at in range(1, len(text)):
        if not _is_mark(text[at]) or at - begin == _MAX_CLUSTER:
            yield begin, at
            begin = at
    if text:
        yield begin, len(text)


def _is_mark(character: str) -> bool:
    if character.isascii():
        return False
    is_jamo = ord(character) in _JAMO
    return is_jamo or character in _VOICING or unicodedata.category(character)[0] == "M"


def _form(reads: Callable[[str], bool], cluster: str) -> str:
    if not _JOINERS.isdisjoint(cluster):
        cluster = "".join(c for c in cluster if c not in _JOINERS or reads(c))
    composed = unicodedata.normalize("NFC", cluster)
    if all(map(reads, cluster)):
        is_better = len(composed) < len(cluster) and all(map(reads, composed))
        return composed if is_better else cluster
    forms = (composed, _alike(composed))
    return next((form for form in forms if all(map(reads, form))), cluster)


def _alike(text: str) -> str:
    """Returns the equivalent of a compatibility character, if both look the same."""
    form = unicodedata.normalize("NFKC", text).replace("\N{HYPHEN}", "-")
    tag = unicodedata.decomposition(text[:1]).partition(" ")[0].strip("<>")
    is_same = tag in _ALIKE or (tag == "compat" and (form == " " or form.isalpha()))
    return form if is_same else text
