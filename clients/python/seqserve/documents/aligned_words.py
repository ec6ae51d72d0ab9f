"""The words of a translation and the source place of each; what stands for markup in it."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from seqserve.documents.marked_text import Mark, kept_in
from seqserve.documents.passage import Link, Translation

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


def without_kept(
    translation: Translation, source: str, marks: Sequence[Mark]
) -> tuple[Translation, dict[int, int]]:
    """Removes what represents marks; returns where each was, by where it begins in the source."""
    text, links = translation.text, translation.alignment
    spans = []
    for mark in kept_in(marks):
        stand_in = source[mark.begin : mark.end]
        begins = (link.target_begin for link in links if link.source_begin == mark.begin)
        begin = next((begin for begin in begins if text.startswith(stand_in, begin)), None)
        if begin is None and stand_in.startswith("{"):
            # Nothing is known of its token.
            begin = text.find(stand_in)
        if begin is not None and begin >= 0:
            spans.append((begin, begin + len(stand_in), mark.begin))
    parts: list[str] = []
    rest: list[Link] = []
    places: dict[int, int] = {}
    read = length = 0
    for begin, end, origin in [*sorted(spans), (len(text), len(text), None)]:
        for link in links:
            if read <= link.target_begin and link.target_end <= begin:
                shift = length - read
                places_in_text = link.target_begin + shift, link.target_end + shift
                rest.append(Link(link.source_begin, link.source_end, *places_in_text))
        parts.append(text[read:begin])
        length += begin - read
        read = end
        if origin is not None:
            places[origin] = length
    return Translation("".join(parts), tuple(rest)), places


def with_copied(
    translation: Translation, source: str, edges: Collection[int]
) -> tuple[Translation, list[int]]:
    """Aligns words that the translation repeats by their characters, such as H2O.

    Args:
        edges: Places within words of the source, where markup begins or ends.

    Returns:
        The translation, and these places in it.
    """
    repeated: defaultdict[str, deque[int]] = defaultdict(deque)
    for unit in _UNIT.finditer(translation.text):
        repeated[unit[0]].append(unit.start())
    links, cuts = translation.alignment, []
    for unit in _UNIT.finditer(source):
        at = repeated[unit[0]].popleft() if repeated[unit[0]] else None
        inner = sorted({each for each in edges if unit.start() < each < unit.end()})
        if at is None or not inner:
            continue
        by, end = at - unit.start(), at + len(unit[0])
        parts = pairwise([unit.start(), *inner, unit.end()])
        rest = (each for each in links if each.target_end <= at or each.target_begin >= end)
        links = (*rest, *(Link(first, last, first + by, last + by) for first, last in parts))
        cuts += [each + by for each in inner]
    return translation._replace(alignment=links), cuts


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
