"""The pieces that a document consists of, and the elements that they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle
from typing import NamedTuple

from seqserve.documents.syntax import Syntax
from seqserve.words import has_words

FIELD = "field"
"""Name of an element whose text a program regenerates."""
# Elements and runs that raise their text.
_IS_RAISED = re.compile(r"sup\Z|run .*?(?:superscript|\sbaseline=[\"'][1-9])", re.S)
# Instructions of fields of Word whose text is data.
_OF_DATA = re.compile(r"[>\"'\s](?:MERGEFIELD|DOCPROPERTY|DOCVARIABLE|AUTHOR|FILENAME)\s", re.I)
# Deeper elements divide the text; they do not occur in practice.
_MAX_DEPTH = 32


class Kind(Enum):
    """Kinds of pieces of a document."""

    TEXT = "text"
    OPENING = "opening"
    CLOSING = "closing"
    START = "start"
    """Half of a pair, such as ``<x id="START_LINK"/>``: it opens an element that ends with the next
    END of its name; alone it is a placeholder."""
    END = "end"
    EMPTY = "empty"
    """Markup that is at a place and around nothing, such as an image."""
    SPACE = "space"
    """Markup that is white space."""
    PLACEHOLDER = "placeholder"
    """Markup in place of words, such as ``{name}``: the server reads and keeps it."""
    BREAK = "break"
    """A piece that divides the text, and stays as it is."""
    EDGE = "edge"
    """A place within a run: ``text`` ends the run before a translation that begins there, and
    ``written`` begins the run again after a translation that ends there."""


class Piece(NamedTuple):
    """A piece of a document: text, or one tag."""

    kind: Kind
    raw: str
    """As the document has it."""
    name: str = ""
    """Name of a tag; an opening tag belongs to a closing one of the same name."""
    why: str = ""
    """Why what divides the text stays, as in :attr:`.Passage.copied`."""
    text: str | None = None
    """Its meaning, if it differs from its syntax."""
    written: str | None = None
    """Its replacement in a translation, if it differs."""
    syntax: Syntax | None = None
    """How texts are written: this one, or those within the element that it opens."""
    parts: tuple[Piece, ...] = ()
    """Texts within a tag, and what is between them; joined, they are the tag."""

    @property
    def markup(self) -> str:
        """Its replacement in a translation."""
        return self.raw if self.written is None else self.written


def code_piece(raw: str, text: str) -> Piece:
    """Returns the piece of a code, which comes back as it is; a model reads it as Markdown's."""
    return Piece(Kind.PLACEHOLDER, raw, text=f"`{text}`")


def divided(raw: str, texts: re.Pattern[str], syntax: Syntax) -> tuple[Piece, ...]:
    """Returns the parts of a tag whose texts a pattern matches as its group; none without texts."""
    raws = texts.split(raw)
    kinds = cycle((Kind.BREAK, Kind.TEXT)) if len(raws) > 1 else ()
    return tuple(Piece(*part, syntax=syntax) for part in zip(kinds, raws, strict=False))


_OPENINGS, _CLOSINGS = (Kind.OPENING, Kind.START), (Kind.CLOSING, Kind.END)


@dataclass(slots=True)
class Element:
    """A piece, or the pieces from a tag to its counterpart."""

    piece: Piece
    text: str = ""
    """Content of a text or a placeholder."""
    children: tuple[Element, ...] = ()
    closing: Piece | None = None
    has_text: bool = False
    """Whether it has a text that is more than white space."""
    has_words: bool = False
    has_placeholder: bool = False
    base: Piece | None = None
    """The opening of the run whose format its text has outside of other runs; None without runs."""

    @property
    def is_read(self) -> bool:
        """Whether it is more than markup at a place."""
        return self.has_text or self.has_placeholder or self.piece.kind is Kind.EDGE

    @property
    def is_run(self) -> bool:
        """Whether it is a run: a text with all that formats it, around which there are others."""
        return self.piece.syntax is not None and self.piece.written is not None

    def pieces(self) -> Iterator[Piece]:
        """Yields its pieces in order."""
        yield self.piece
        for child in self.children:
            yield from child.pieces()
        if self.closing:
            yield self.closing


def leaf(piece: Piece, syntax: Syntax) -> Element:
    """Returns the element that a piece is, with what it says."""
    if piece.kind is Kind.PLACEHOLDER:
        text = syntax.read(piece.raw) if piece.text is None else piece.text
        return Element(piece, text, has_placeholder=True)
    if piece.kind is not Kind.TEXT:
        return Element(piece, " " if piece.kind is Kind.SPACE else "")
    text = (piece.syntax or syntax).read(piece.raw) if piece.text is None else piece.text
    return Element(piece, text, has_text=bool(text.strip()), has_words=has_words(text))


def _around(piece: Piece, children: Sequence[Element], closing: Piece) -> Element:
    element = Element(piece, "", tuple(children), closing)
    element.has_text = any(child.has_text for child in children)
    element.has_words = any(child.has_words for child in children)
    element.has_placeholder = any(child.has_placeholder for child in children)
    if piece.name == FIELD and element.has_text:
        own = [piece, *(p for each in children if each.piece.name != FIELD for p in each.pieces())]
        is_data = any(_OF_DATA.search(each.raw) for each in own if each.kind is not Kind.TEXT)
        if is_data or not element.has_words:
            # A field of data, or without a letter, such as a page number.
            element.has_text, element.has_placeholder = False, True
    is_number = element.has_text and not (element.has_words or element.has_placeholder)
    is_raised = _IS_RAISED.match(piece.name) or "noteref" in piece.raw
    if is_number and is_raised and not any(p.parts for p in element.pieces()):
        # A note or an exponent, which a model would read as a part of the word before it.
        raw = "".join(p.raw for p in element.pieces())
        text = "".join(child.text for child in children)
        written = piece.syntax.write(text) if piece.syntax and element.is_run else None
        return Element(Piece(Kind.EMPTY, raw, written=written))
    element.base = base_of(children)
    if element.is_run:
        element.base = piece if element.has_text else None
    if element.is_run or not element.has_text:
        element.text = "".join(child.text for child in children)
    return element


def base_of(elements: Sequence[Element]) -> Piece | None:
    """Returns what opens the run whose format text has that is in no other run."""
    based = [element for element in elements if element.base]
    runs = [element for element in based if element.is_run] or based
    worded = (run.base for run in runs if run.base and run.has_words)
    # White space around a link of PowerPoint is no part of it.
    unlinked = (base for base in worded if "hlinkClick" not in base.name)
    return next(unlinked, runs[0].base if runs else None)


def paired(pieces: Sequence[Piece], syntax: Syntax) -> tuple[list[Element], list[int]]:
    """Returns the elements that pieces make, and the places of those that belong to none."""
    levels: list[list[Element]] = [[]]
    opened: list[int] = []
    loose = []

    def close_halves(name: str | None) -> None:
        # A half without its counterpart is a placeholder.
        while opened and (half := pieces[opened[-1]]).kind is Kind.START and half.name != name:
            inner = levels.pop()
            opened.pop()
            levels[-1] += [leaf(half._replace(kind=Kind.PLACEHOLDER), syntax), *inner]

    for index, piece in enumerate(pieces):
        if piece.kind in _OPENINGS and len(opened) < _MAX_DEPTH:
            levels.append([])
            opened.append(index)
        elif piece.kind in _CLOSINGS and _is_open(pieces, opened, piece):
            close_halves(piece.name if piece.kind is Kind.END else None)
            children = levels.pop()
            levels[-1].append(_around(pieces[opened.pop()], children, piece))
        elif piece.kind in (Kind.OPENING, Kind.CLOSING, Kind.BREAK):
            loose.append(index)
        else:
            if piece.kind in (Kind.START, Kind.END):
                piece = piece._replace(kind=Kind.PLACEHOLDER)
            levels[-1].append(leaf(piece, syntax))
    close_halves(None)
    return levels[0], sorted([*loose, *opened])


def _is_open(pieces: Sequence[Piece], opened: Sequence[int], closing: Piece) -> bool:
    is_half = closing.kind is Kind.END
    for opening in (pieces[index] for index in reversed(opened)):
        if opening.kind is Kind.OPENING or is_half:
            is_same = opening.name == closing.name
            if is_same or opening.kind is Kind.OPENING:
                return is_same and is_half is (opening.kind is Kind.START)
    return False
