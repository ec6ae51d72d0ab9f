"""The words of a translation, and the source place of each."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from seqserve.documents.passage import Translation

# A word with what joins its parts, or one other character.
_UNIT = re.compile(r"\w+(?:['’‑-]\w+)*|\S")
# Scripts that put no space between words, where tokens take their place: Thai to Khmer, Chinese,
# Japanese.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff]")


class Word(NamedTuple):
    """A word, or another character. Places count characters."""

    begin: int
    end: int
    source: int | None
    """Its place in the source; None if it is unknown."""
    source_end: int
    """Where that ends."""
    counts: bool
    """Whether it is a word."""


def words_of(translation: Translation, cuts: Sequence[int]) -> list[Word]:
    """Divides a translation into words; most characters of a word decide its place in the source.

    Words end at ``cuts`` too, which are in order.
    """
    links = sorted(translation.alignment, key=lambda link: link.target_begin)
    begins = [link.target_begin for link in links]
    words = []
    for unit in _UNIT.finditer(translation.text):
        for begin, end in _parts(unit, begins, cuts):
            votes: Counter[tuple[int, int]] = Counter()
            # The first link may begin before the word.
            first = max(0, bisect_right(begins, begin) - 1)
            for link in links[first : bisect_right(begins, end - 1)]:
                common = min(end, link.target_end) - max(begin, link.target_begin)
                votes[link[:2]] += max(0, common)
            (source, last), count = votes.most_common(1)[0] if votes else ((0, 0), 0)
            counts = translation.text[begin].isalnum()
            words.append(Word(begin, end, source if count else None, last, counts))
    return words


def _parts(
    unit: re.Match[str], begins: Sequence[int], cuts: Sequence[int]
) -> list[tuple[int, int]]:
    begin, end = unit.span()
    places = {begin, end, *_between(cuts, begin, end)}
    if _UNSPACED.search(unit[0]):
        places.update(_between(begins, begin, end))
    return list(pairwise(sorted(places)))


def _between(places: Sequence[int], begin: int, end: int) -> Sequence[int]:
    return places[bisect_right(places, begin) : bisect_right(places, end - 1)]
