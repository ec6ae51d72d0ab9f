"""XML as translators exchange it, as passages.

Source: Extensible Markup Language 1.0, section 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import partial
from html import escape, unescape

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Passage
from seqserve.documents.syntax import Syntax

# Markup without an end takes the rest: looking for the end of each would take quadratic time.
_MARKUP = re.compile(
    r"(?P<data><!\[CDATA\[.*?(?:\]\]>|\Z))"
    r"|(?P<other><!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|<![^>]*(?:>|\Z))"
    r"|<(?P<end>/?)(?P<name>[\w:.-]+)(?:\s[^<>]*?)?(?P<empty>/?)>",
    re.DOTALL,
)
_XML = Syntax(read=unescape, write=partial(escape, quote=False))


def xml(text: str, ignored: Collection[str] = ()) -> Iterator[Passage]:
    """Yields the passages of XML as translators exchange it: tags follow the words they enclose.

    Args:
        text: XML, or a part of it.
        ignored: Names of elements that stay as they are, with their content.

    Source: Extensible Markup Language 1.0, section 3.1.
    """
    return passages(list(_pieces(text, ignored)), _XML)


def _pieces(text: str, ignored: Collection[str]) -> Iterator[Piece]:
    end = 0
    for match in _MARKUP.finditer(text):
        if match.start() < end:
            # Inside an element that stays as it is.
            continue
        yield Piece(Kind.TEXT, text[end : match.start()])
        end = match.end()
        if match["name"] in ignored and not match["end"] and not match["empty"]:
            close = re.compile(rf"</{re.escape(match['name'])}\s*>").search(text, end)
            end = close.end() if close else len(text)
        yield Piece(_kind(match, ignored), text[match.start() : end], match["name"] or "")
    yield Piece(Kind.TEXT, text[end:])


def _kind(match: re.Match[str], ignored: Collection[str]) -> Kind:
    if match["data"]:
        return Kind.BREAK
    if match["other"] or match["empty"] or match["name"] in ignored:
        return Kind.EMPTY
    return Kind.CLOSING if match["end"] else Kind.OPENING
