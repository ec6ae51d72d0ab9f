"""The markup of a text by its places, and its representations in a translation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from seqserve.documents.passage import Link, Translation


class Mark(NamedTuple):
    """An element of a text. Places count characters of the text."""

    begin: int
    end: int
    """As ``begin`` for one that is at a place and around nothing."""
    opening: str
    """Its markup, or that before its text."""
    closing: str = ""
    """Its markup after its text."""
    children: tuple[Mark, ...] = ()
    """The elements within it, in order."""
    is_kept: bool = False
    """Whether its text represents it in the translation too, as the server keeps it."""
    is_apart: bool = False
    """For a mark at a place: whether white space is before it."""
    is_glued: bool = False
    """For a mark at a place: whether a word follows at once."""
    is_space: bool = False
    """Whether it is a space of the text."""
    write: Callable[[str], str] | None = None
    """Writes text within it, if not as around it."""

    @property
    def is_point(self) -> bool:
        """Whether it is at a place, and around nothing."""
        return self.is_kept or self.is_space or self.begin == self.end


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


def kept_in(marks: Iterable[Mark]) -> Iterator[Mark]:
    """Yields the marks whose texts represent them, at any depth."""
    for mark in marks:
        if mark.is_kept:
            yield mark
        yield from kept_in(mark.children)
