"""The text of elements as a model reads it, and where their markup is in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from seqserve.documents.pieces import Element, Kind, base_of
from seqserve.documents.syntax import Syntax

BLANK = " \t\r\n\f"
_SPACE = re.compile(f"[{BLANK}]+")
# Characters that follow a word without a space.
# Not %s, :name or .NET, which are words.
_MARK_AFTER = re.compile(r"[…)\]}»”。、，！？]|[,.;:!?%](?![\w(@])")
_ENDINGS = {"st", "nd", "rd", "th"}
# Parts of a placeholder that a model can read.
_MAX_STAND_IN = 40


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


def kept_in(marks: Iterable[Mark]) -> Iterator[Mark]:
    """Yields the marks whose texts represent them, at any depth."""
    for mark in marks:
        if mark.is_kept:
            yield mark
        yield from kept_in(mark.children)


class MarkedText:
    """Collects the text of elements, and the spans that the server keeps."""

    def __init__(self, syntax: Syntax) -> None:
        """Has no text yet; ``syntax`` tells what white space within it means."""
        self.kept: dict[str, None] = {}
        """Texts that replace placeholders, in order."""
        self._syntax = syntax
        self._parts: list[str] = []
        self._length = 0
        # The points at the end of the text, each by its list and its place there.
        self._points: list[tuple[list[Mark], int]] = []
        # Whether white space follows them.
        self._is_spaced = False

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self._parts)

    def add(
        self, elements: Sequence[Element], write: Callable[[str], str], behind: str = ""
    ) -> tuple[list[Mark], Callable[[str], str]]:
        """Adds the text of elements; ``behind`` is the following character.

        Returns:
            The marks of elements that are not text, and how to write text outside of all of them.
        """
        base = base_of(elements)
        write = base.syntax.write if base and base.syntax else write
        marks: list[Mark] = []
        parts = [*_without_runs(elements, base.name if base else "")]
        begins = accumulate(
            reversed(parts), lambda after, part: _begin(part) or after, initial=behind
        )
        for element, behind in zip(parts, [*begins][-2::-1], strict=True):
            begin, piece = self._length, element.piece
            if piece.kind is Kind.TEXT:
                self._add(element.text, marks)
            elif element.closing is None or not element.has_text:
                self._add_point(element, marks, write, behind)
            else:
                own = piece.syntax.write if piece.syntax else write
                children, own = self.add(element.children, own, behind)
                tags = piece.markup, element.closing.markup
                marks.append(Mark(begin, self._length, *tags, tuple(children), write=own))
                self._points = []
        return marks, write

    def _add(self, text: str, marks: list[Mark]) -> None:
        if not self._syntax.keeps_space:
            text = _SPACE.sub(" ", text)
        if self._points and text:
            text = self._behind_points(text, marks)
        if not self._syntax.keeps_space and self._ends_with_space():
            text = text.removeprefix(" ")
        self._append(text)

    def _append(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._length += len(text)
            self._points, self._is_spaced = [], False

    def _ends_with_space(self) -> bool:
        return not self._parts or self._parts[-1][-1].isspace()

    def _behind_points(self, text: str, marks: list[Mark]) -> str:
        """Notes the text after the points; returns the text without white space on both sides."""
        own, index = self._points[-1]
        is_behind_space = self._ends_with_space() and self._length > 0
        is_mark = _MARK_AFTER.match(text) is not None
        if not text[0].isspace():
            own[index] = own[index]._replace(is_glued=not (is_mark or self._is_spaced))
        elif is_behind_space and text[0] == " ":
            self._is_spaced = True
            return text[1:]
        if is_mark and is_behind_space and own is marks:
            # A model reads "Hello, good day", not "Hello , good day".
            if last := self._parts.pop()[:-1]:
                self._parts.append(last)
            self._length -= 1
            for each, place in self._points:
                each[place] = each[place]._replace(begin=self._length, end=self._length)
        return text

    def _add_point(
        self, element: Element, marks: list[Mark], write: Callable[[str], str], behind: str
    ) -> None:
        begin, markup = self._length, _markup(element, write)
        is_behind_space = self._ends_with_space() and begin > 0
        if element.has_placeholder:
            stand_in = self._stand_in(element, behind)
            self._append(self._behind_points(stand_in, marks) if self._points else stand_in)
            begin = self._length - len(stand_in)
            marks.append(Mark(begin, self._length, markup, is_kept=True, is_apart=is_behind_space))
            return
        is_space = element.piece.kind is Kind.SPACE or any(each.text for each in element.children)
        if is_space and not self._ends_with_space():
            self._append(" ")
            marks.append(Mark(begin, self._length, markup, is_space=True))
        elif self._points and self._points[-1][0] is marks and not self._is_spaced:
            marks[-1] = marks[-1]._replace(opening=marks[-1].opening + markup)
        elif markup:
            is_apart = self._is_spaced or (not self._points and is_behind_space)
            self._points.append((marks, len(marks)))
            marks.append(Mark(begin, begin, markup, is_apart=is_apart))
            self._is_spaced = False

    def _stand_in(self, element: Element, behind: str) -> str:
        texts = [each.text for each in _placeholders(element)]
        text = texts[0]
        is_word = 0 < len(text) <= _MAX_STAND_IN and " ".join(text.split()) == text
        # Of 30 sentences the shipped model copies "{0}" in all, and their rest is nearer to what it
        # writes around a word (F1 0.95) than around a tag (0.91) or brackets of other kinds.
        is_glued = self._parts and self._parts[-1][-1].isalnum() and text[:1].isalnum()
        is_glued = is_glued or (text[-1:].isalnum() and behind.isalnum())
        if len(texts) > 1 or not is_word or is_glued or text.startswith("<"):
            text = f"{{{len(self.kept)}}}"
        self.kept[text] = None
        return text


def _is_ending(element: Element) -> bool:
    """Returns whether it raises the "st" of "1st", which no other language has."""
    is_raised = element.is_run or element.piece.name in ("sup", "text:span")
    return is_raised and "".join(each.text for each in element.children) in _ENDINGS


def _begin(element: Element) -> str:
    return element.text[:1] or next(filter(None, map(_begin, element.children)), "")


def _placeholders(element: Element) -> Iterator[Element]:
    inner = [child for child in element.children if child.has_placeholder]
    return chain.from_iterable(map(_placeholders, inner)) if inner else iter([element])


def _markup(element: Element, write: Callable[[str], str]) -> str:
    piece = element.piece
    if piece.kind is Kind.TEXT:
        return write(element.text)
    if piece.kind is Kind.EDGE:
        return ""
    own = piece.syntax.write if piece.syntax else write
    inner = "".join(_markup(child, own) for child in element.children)
    return piece.markup + inner + (element.closing.markup if element.closing else "")


def _without_runs(elements: Sequence[Element], name: str) -> Iterator[Element]:
    """Yields elements, of which runs of a format or without a text are what is in them."""
    for element in elements:
        is_plain = element.is_run and (element.piece.name == name or not element.has_text)
        if is_plain or (element.closing and _is_ending(element)):
            yield from element.children
        elif element.piece.kind is not Kind.EDGE and (element.text or element.piece.raw):
            yield element
