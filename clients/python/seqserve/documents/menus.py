"""Menus, bread crumbs and lists of tags: links in a block that no sentence joins."""

import re
from collections.abc import Iterator, Sequence

from seqserve.documents.pieces import Element, Kind, leaf
from seqserve.documents.syntax import Syntax

_SPACE = re.compile(r"([ \t\r\n\f]+)")
_SEPARATOR = re.compile(r"\s*(?:[›»‹«>|¦/\\→•·∙⋅・❯▸▶]\s*)+")
# Characters of a label; a longer text may be a sentence that is formatted in parts.
_MAX_LABEL = 40
# What may be between separators, each element by its letter as of _letter.
_ITEMS = re.compile(r" *+(?:l *+)?(?:[te]|a(?: *+a)*+|[an](?: ++[an])*+|a(?: *+, *+a)++)? *+")


def items_of(elements: Sequence[Element], syntax: Syntax) -> list[Element]:
    """Divides a menu into its items and what is between them; returns nothing if it is no menu.

    Between separators, an item is a text or an element. Between commas it is a link, and between
    white space a link or a short span.
    """
    if not any(element.closing for element in elements):
        return []
    parts = [part for element in elements for part in _divided(element, syntax)]
    letters = "".join(map(_letter, parts))
    counts = [len(re.findall(each, letters)) for each in ("[aen]", "[aent]")]
    is_menu = min(counts) > 0 and max(counts) > 1
    return parts if is_menu and all(map(_ITEMS.fullmatch, letters.split("|"))) else []


def _divided(element: Element, syntax: Syntax) -> Iterator[Element]:
    """Yields an element, or a text divided at separators, which are between white space."""
    piece = element.piece
    if piece.kind is not Kind.TEXT:
        yield element
        return
    text = ""
    for raw in _SPACE.split(piece.raw):
        if _SEPARATOR.fullmatch((piece.syntax or syntax).read(raw)):
            yield from (leaf(piece._replace(raw=each), syntax) for each in (text, raw) if each)
            text = ""
        else:
            text += raw
    if text:
        yield leaf(piece._replace(raw=text), syntax)


def _letter(element: Element) -> str:
    """Returns what an element may be in a menu: a separator, a comma, a label, an item."""
    text = _text(element)
    if not text.strip():
        return "e" if element.has_placeholder else " "
    if _SEPARATOR.fullmatch(text):
        return "|"
    if element.closing is None:
        is_comma = element.piece.kind is Kind.TEXT and text.strip() in (",", ";")
        return "," if is_comma else "l" if text.rstrip().endswith(":") else "t"
    if element.piece.name == "a":
        return "a"
    is_short = len(text.strip()) <= _MAX_LABEL and not text.lstrip()[:1].islower()
    return "n" if element.piece.name == "span" and is_short else "e"


def _text(element: Element) -> str:
    return element.text or "".join(map(_text, element.children))
