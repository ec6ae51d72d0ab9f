"""Placeholders in the texts of programs, which a translation has exactly and once.

A placeholder is markup at a place: the model does not see it, and it is put behind the word that it
followed (:mod:`.placement`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from seqserve.documents.inline import Kind, Piece
from seqserve.documents.syntax import SourceText, Syntax
from seqserve.placeholders import PLACEHOLDER

_TAG = r"<(?P<end>/?)(?P<name>[A-Za-z0-9][\w:.-]*)(?:\s[^<>]*?)?(?P<empty>/?)>"
_VOID = {"br", "hr", "img", "input", "wbr"}


def pieces(raw: str, syntax: Syntax, *, others: str = "", is_whole: bool = True) -> Iterator[Piece]:
    """Divides a text of a program into words, placeholders and tags.

    Args:
        raw: The text as the document writes it.
        syntax: How it writes texts, with its escapes.
        others: A pattern of more placeholders.
        is_whole: Whether it is all of a text, so that white space around it is no part of it.
    """
    text = SourceText(raw, syntax)
    begin, last = 0, len(text.text)
    if is_whole:
        last = len(text.text.rstrip())
        begin = min(len(text.text) - len(text.text.lstrip()), last)
        yield Piece(Kind.BREAK, text.raw(0, begin))
    matches = [*_markup(others).finditer(text.text, begin, last)]
    for match, kind in zip(matches, _kinds(matches), strict=True):
        yield Piece(Kind.TEXT, text.raw(begin, match.start()))
        yield Piece(kind, text.raw(*match.span()), match["name"] or "")
        begin = match.end()
    yield Piece(Kind.TEXT, text.raw(begin, last))
    if is_whole:
        yield Piece(Kind.BREAK, text.raw(last, len(text.text)))


@cache
def _markup(others: str) -> re.Pattern[str]:
    placeholders = f"{others}|{PLACEHOLDER}" if others else PLACEHOLDER
    return re.compile(rf"(?P<placeholder>{placeholders})|(?P<tag>{_TAG})|<!--.*?-->", re.S)


def _kinds(matches: list[re.Match[str]]) -> list[Kind]:
    """Tells what markup is; a tag without its counterpart is a placeholder, such as ``<Enter>``."""
    kinds = []
    opened: list[tuple[str, int]] = []
    for index, match in enumerate(matches):
        if not match["tag"] and not match["placeholder"]:
            kinds.append(Kind.EMPTY)
            continue
        kinds.append(Kind.PLACEHOLDER)
        if match["placeholder"]:
            continue
        if match["empty"] or match["name"].lower() in _VOID:
            kinds[index] = Kind.EMPTY
        elif not match["end"]:
            opened.append((match["name"], index))
        elif opened and opened[-1][0] == match["name"]:
            kinds[opened.pop()[1]], kinds[index] = Kind.OPENING, Kind.CLOSING
    return kinds
