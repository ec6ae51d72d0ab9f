"""Messages of ICU: the branches of a plural or a choice are texts, and its syntax stays.

Source: https://unicode-org.github.io/icu/userguide/format_parse/messages/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from seqserve.documents.inline import Kind, Piece
from seqserve.documents.placeholders import pieces
from seqserve.documents.syntax import Syntax

_BEGIN = re.compile(r"\{\s*[\w.]+\s*,\s*(plural|select|selectordinal)\s*,")
_BRACE = re.compile(r"'[{}](?:[^']|'')*'|[{}]")
# Deeper messages are texts; nobody writes them.
_MAX_DEPTH = 16


def is_message(text: str) -> bool:
    """Tells whether a text has a choice of several texts."""
    return bool(_BEGIN.search(text))


def message_pieces(raw: str, syntax: Syntax) -> Iterator[Piece]:
    """Divides a text of a program into words, placeholders, tags, and the branches of a choice."""
    return _pieces(raw, syntax, "", 0)


def _pieces(raw: str, syntax: Syntax, others: str, depth: int) -> Iterator[Piece]:
    end = 0
    while depth < _MAX_DEPTH and (choice := _BEGIN.search(raw, end)):
        branches = _branches(raw, choice.end())
        if not branches:
            break
        if choice.start() > end:
            yield from pieces(raw[end : choice.start()], syntax, others=others)
        end = choice.start()
        for begin, last in branches[:-1]:
            yield Piece(Kind.BREAK, raw[end:begin])
            is_plural = choice[1] != "select"
            yield from _pieces(raw[begin:last], syntax, "#" if is_plural else others, depth + 1)
            end = last
        yield Piece(Kind.BREAK, raw[end : branches[-1][1]])
        end = branches[-1][1]
    if end < len(raw):
        yield from pieces(raw[end:], syntax, others=others)


def _branches(raw: str, begin: int) -> list[tuple[int, int]]:
    """Returns where the texts of a choice begin and end, and then its end; nothing if it has none.

    Args:
        raw: A message.
        begin: The place behind the kind of the choice.
    """
    branches = []
    depth = 0
    for brace in _BRACE.finditer(raw, begin):
        if brace[0] == "{":
            depth += 1
            if depth == 1:
                begin = brace.end()
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                branches.append((begin, brace.start()))
            elif depth < 0:
                return [*branches, (brace.start(), brace.end())] if branches else []
    return []
