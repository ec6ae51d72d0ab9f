"""Text with markup within it, such as a paragraph of HTML: one passage, without its markup.

The markup returns to the words that it was around, by the alignment of their translation
(:mod:`.placement`). What is no whole element divides the text: a tag without its counterpart, code,
a break.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import NamedTuple

from seqserve.declarations import DECLARATIONS
from seqserve.documents.passage import Passage, Translation, fits
from seqserve.documents.placement import Mark, placed
from seqserve.documents.syntax import Syntax
from seqserve.words import has_words

_BLANK = " \t\r\n\f"
_SPACE = re.compile(f"[{_BLANK}]+")
# Deeper elements divide the text; nobody writes them.
_MAX_DEPTH = 32
# To place markup takes as many steps as there are tags and words, multiplied.
_MAX_PIECES = 1000
_MAX_KEPT = DECLARATIONS["keep"].max_items
# What of a placeholder a model may well read.
_MAX_STAND_IN = 40


class Kind(Enum):
    """What a piece of a document is."""

    TEXT = "text"
    OPENING = "opening"
    CLOSING = "closing"
    EMPTY = "empty"
    """Markup that is at a place and around nothing, such as an image."""
    PLACEHOLDER = "placeholder"
    """Markup in the place of words, such as ``{name}``: the server reads and keeps it."""
    BREAK = "break"
    """What divides the text, and stays as it is."""


class Piece(NamedTuple):
    """A piece of a document: text, or one tag."""

    kind: Kind
    raw: str
    """As the document has it."""
    name: str = ""
    """Of a tag; one that opens belongs to one of the same name that closes."""
    why: str = ""
    """Why what divides the text stays, as in :attr:`.Passage.copied`."""


def passages(pieces: Sequence[Piece], syntax: Syntax) -> Iterator[Passage]:
    """Yields the passages of a document; white space around and within a text means nothing."""
    return joined_passages(_parts(pieces, syntax))


def joined_passages(parts: Iterable[str | Passage]) -> Iterator[Passage]:
    """Yields the passages of a document, with their lines and what comes before them."""
    before, line = "", 1
    for part in parts:
        if isinstance(part, str):
            before += part
            continue
        before += part.before
        if not (part.text or part.copied or part.fault):
            before += part.source
            continue
        line += before.count("\n")
        yield replace(part, line=line, before=before)
        line += part.source.count("\n")
        before = ""
    yield Passage(line=line, before=before)


@dataclass(frozen=True, slots=True)
class _Element:
    piece: Piece
    children: tuple[_Element, ...] = ()
    closing: Piece | None = None

    def pieces(self) -> Iterator[Piece]:
        yield self.piece
        for child in self.children:
            yield from child.pieces()
        if self.closing:
            yield self.closing

    def has_text(self, syntax: Syntax) -> bool:
        if self.piece.kind is Kind.TEXT:
            return bool(syntax.read(self.piece.raw).strip())
        return any(child.has_text(syntax) for child in self.children)

    def has_words(self, syntax: Syntax) -> bool:
        pieces = (piece.raw for piece in self.pieces() if piece.kind is Kind.TEXT)
        return any(has_words(syntax.read(raw)) for raw in pieces)

    def is_read(self, syntax: Syntax) -> bool:
        return self.has_placeholder() or self.has_text(syntax)

    def has_placeholder(self) -> bool:
        return any(piece.kind is Kind.PLACEHOLDER for piece in self.pieces())


def _parts(pieces: Sequence[Piece], syntax: Syntax) -> Iterator[str | Passage]:
    elements, loose = _paired(pieces)
    if not loose:
        yield from _of_elements(elements, syntax)
        return
    begin = 0
    for index in loose:
        yield from _parts(pieces[begin:index], syntax)
        raw, why = pieces[index].raw, pieces[index].why
        yield Passage(line=0, source=raw, copied=why) if why and has_words(raw) else raw
        begin = index + 1
    yield from _parts(pieces[begin:], syntax)


def _paired(pieces: Sequence[Piece]) -> tuple[list[_Element], list[int]]:
    levels: list[list[_Element]] = [[]]
    opened: list[int] = []
    loose = []
    for index, piece in enumerate(pieces):
        if piece.kind in (Kind.TEXT, Kind.EMPTY, Kind.PLACEHOLDER):
            levels[-1].append(_Element(piece))
        elif piece.kind is Kind.OPENING and len(opened) < _MAX_DEPTH:
            levels.append([])
            opened.append(index)
        elif piece.kind is Kind.CLOSING and opened and pieces[opened[-1]].name == piece.name:
            children = tuple(levels.pop())
            levels[-1].append(_Element(pieces[opened.pop()], children, piece))
        else:
            loose.append(index)
    return levels[0], sorted([*loose, *opened])


def _of_elements(elements: list[_Element], syntax: Syntax) -> Iterator[str | Passage]:
    if not any(each.has_words(syntax) for each in elements):
        raw = _raw(piece for each in elements for piece in each.pieces())
        is_seen = any(each.is_read(syntax) for each in elements)
        yield Passage(line=0, source=raw, copied="no letter") if is_seen else raw
        return
    head, inner, tail = _trimmed(elements, syntax)
    builder = _MarkedText(syntax)
    marks = builder.marks_of(inner)
    text = builder.text.rstrip(" ")
    source = _raw(piece for each in inner for piece in each.pieces())
    yield _raw(head)
    is_marked_too_much = marks and sum(1 for each in inner for _ in each.pieces()) > _MAX_PIECES
    if is_marked_too_much or len(builder.kept) > _MAX_KEPT or not fits(text):
        yield from _parts(_separate(inner, syntax), syntax)
    elif marks:
        written = partial(placed, source=text, marks=marks, write=syntax.write)
        yield Passage(
            line=0,
            source=source,
            text=text,
            kept=tuple(builder.kept),
            written=written,
            split_passages=partial(_split, inner, syntax),
        )
    else:
        written = partial(_written, write=syntax.write)
        yield Passage(line=0, source=source, text=text, written=written)
    yield _raw(tail)


def _trimmed(
    elements: list[_Element], syntax: Syntax
) -> tuple[list[Piece], list[_Element], list[Piece]]:
    head: list[Piece] = []
    tail: deque[Piece] = deque()
    inner = deque(elements)
    while inner:
        while inner and not inner[0].is_read(syntax):
            head += inner.popleft().pieces()
        while inner and not inner[-1].is_read(syntax):
            tail.extendleft(reversed([*inner.pop().pieces()]))
        if len(inner) != 1 or (closing := inner[0].closing) is None:
            break
        head.append(inner[0].piece)
        tail.appendleft(closing)
        inner = deque(inner[0].children)
    if inner and inner[0].piece.kind is Kind.TEXT:
        first = inner[0].piece
        stripped = first.raw.lstrip(_BLANK)
        head.append(Piece(Kind.BREAK, first.raw[: len(first.raw) - len(stripped)]))
        inner[0] = _Element(first._replace(raw=stripped))
    if inner and inner[-1].piece.kind is Kind.TEXT:
        last = inner[-1].piece
        stripped = last.raw.rstrip(_BLANK)
        tail.appendleft(Piece(Kind.BREAK, last.raw[len(stripped) :]))
        inner[-1] = _Element(last._replace(raw=stripped))
    return head, list(inner), list(tail)


class _MarkedText:
    def __init__(self, syntax: Syntax) -> None:
        self.text = ""
        self.kept: dict[str, None] = {}
        """Texts that replace placeholders, in order."""
        self._syntax = syntax

    def marks_of(self, elements: Iterable[_Element]) -> list[Mark]:
        """Adds the text of elements; returns the marks of those that are no text."""
        marks: list[Mark] = []
        for element in elements:
            begin = len(self.text)
            if element.piece.kind is Kind.TEXT:
                self._add(element.piece.raw, marks)
            elif element.closing is None or not element.has_text(self._syntax):
                if element.has_placeholder():
                    self._add_placeholder(element)
                is_kept = begin < len(self.text)
                marks.append(Mark(begin, len(self.text), _raw(element.pieces()), is_kept=is_kept))
            else:
                children = self.marks_of(element.children)
                end = len(self.text)
                tags = element.piece.raw, element.closing.raw
                marks.append(Mark(begin, end, *tags, tuple(children)))
        return marks

    def _add(self, raw: str, marks: list[Mark]) -> None:
        text = self._syntax.read(raw)
        if not self._syntax.keeps_space:
            text = _SPACE.sub(" ", text)
        if (not self.text or self.text.endswith(" ")) and text.startswith(" "):
            is_behind_mark = bool(marks) and marks[-1].begin == len(self.text) == marks[-1].end
            if is_behind_mark:
                # White space on both sides of it.
                marks[-1] = marks[-1]._replace(opening=f"{marks[-1].opening} ")
            if is_behind_mark or not self._syntax.keeps_space:
                text = text.removeprefix(" ")
        self.text += text

    def _add_placeholder(self, element: _Element) -> None:
        raws = [piece.raw for piece in element.pieces() if piece.kind is Kind.PLACEHOLDER]
        text = self._syntax.read(raws[0])
        if len(raws) > 1 or len(text) > _MAX_STAND_IN or _SPACE.sub(" ", text).strip() != text:
            text = f"{{{len(self.kept)}}}"
        self.kept[text] = None
        self.text += text


def _split(elements: Iterable[_Element], syntax: Syntax) -> Iterator[Passage]:
    return passages(_separate(elements, syntax), syntax)


def _separate(elements: Iterable[_Element], syntax: Syntax) -> list[Piece]:
    pieces: list[Piece] = []
    for piece in (piece for each in elements for piece in each.pieces()):
        if piece.kind is Kind.TEXT:
            for part in syntax.parts(piece.raw):
                pieces += [Piece(Kind.TEXT, part), Piece(Kind.BREAK, "")]
        else:
            pieces.append(piece._replace(kind=Kind.BREAK))
    return pieces


def _raw(pieces: Iterable[Piece]) -> str:
    return "".join(piece.raw for piece in pieces)


def _written(translation: Translation, write: Callable[[str], str]) -> str:
    return write(translation.text)
