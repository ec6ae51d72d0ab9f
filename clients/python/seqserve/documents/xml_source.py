"""XML as its document writes it: tags, texts and all else, which joined are the document.

Expat checks that it is well-formed; it expands no entity and reads no other file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.parsers import expat

from seqserve.documents.inline import Kind
from seqserve.documents.passage import ParseError
from seqserve.documents.syntax import Syntax

_MAX_DEPTH = 256
_QUOTED = r"\"[^\"]*\"|'[^']*'"
_OTHER = (
    r"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>"
    rf"|<!DOCTYPE(?:[^\[>\"']|{_QUOTED})*"
    rf"(?:\[(?:<!--.*?-->|<\?.*?\?>|{_QUOTED}|[^\]\"'])*\]\s*)?>"
)
_TOKEN = re.compile(
    rf"(?P<other>{_OTHER})"
    rf"|<(?P<end>/?)(?P<name>[^\s<>/!?]+)(?:[^<>\"'/]|{_QUOTED})*(?P<empty>/?)>",
    re.S,
)
_ATTRIBUTE = re.compile(rf"([^\s=<>\"']+)\s*=\s*({_QUOTED})")
REFERENCE = r"&(?:lt|gt|amp|quot|apos|#\d+|#x[\da-fA-F]+);"
"""References to characters, as a pattern; others are references to entities."""
ENTITY = r"&[^\s&;]+;"
"""References to entities, as a pattern."""
_REFERENCE = re.compile(REFERENCE)


class Token(NamedTuple):
    """A tag, a text, or what is neither, such as a comment."""

    kind: Kind
    """``EMPTY`` for a tag that is a whole element, ``BREAK`` for what is neither."""
    raw: str
    name: str = ""
    """Of a tag, without its prefix."""

    def attributes(self) -> dict[str, str]:
        """Returns the attributes of a tag, by their names with prefixes."""
        return {name: html.unescape(value[1:-1]) for name, value in _ATTRIBUTE.findall(self.raw)}


def tokens(source: str) -> list[Token]:
    """Divides a document."""
    _check(source)
    return [*_tokens(source)]


def _tokens(source: str) -> Iterator[Token]:
    end = 0
    for match in _TOKEN.finditer(source):
        if end < match.start():
            yield Token(Kind.TEXT, source[end : match.start()])
        name = (match["name"] or "").rpartition(":")[2]
        kind = Kind.CLOSING if match["end"] else Kind.EMPTY if match["empty"] else Kind.OPENING
        yield Token(Kind.BREAK if match["other"] else kind, match[0], name)
        end = match.end()
    if end < len(source):
        yield Token(Kind.TEXT, source[end:])


def end_of(tokens: Sequence[Token], begin: int) -> int:
    """Returns the index of the tag that closes the element that a tag opens."""
    depth = 0
    for index in range(begin, len(tokens)):
        depth += {Kind.OPENING: 1, Kind.CLOSING: -1}.get(tokens[index].kind, 0)
        if not depth:
            return index
    return len(tokens)


def raw_of(tokens: Sequence[Token]) -> str:
    """Returns tokens as the document has them."""
    return "".join(token.raw for token in tokens)


def _check(source: str) -> None:
    parser = expat.ParserCreate()
    depth = 0

    def start(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            reason = f"has an element within {_MAX_DEPTH} others, which is too deep"
            raise ParseError(parser.CurrentLineNumber, reason)

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def declared(name: str, is_parameter: bool, value: str | None, *_: object) -> None:
        if is_parameter or (value and re.search("[&%<]", value)):
            reason = f"declares {name!r}, an entity that is more than text"
            raise ParseError(parser.CurrentLineNumber, reason)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = declared
    # Without it entities would be expanded.
    parser.DefaultHandler = lambda _: None
    try:
        parser.Parse(source, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ParseError(error.lineno, f"is not well-formed XML: {reason}") from None


def character(reference: str) -> str:
    """Returns the character that a reference means."""
    return html.unescape(reference)


def escaped(text: str) -> str:
    """Writes a text between tags."""
    return html.escape(text, quote=False)


def _read(raw: str) -> str:
    return _REFERENCE.sub(lambda match: character(match[0]), raw)


XML = Syntax(read=_read, write=escaped, escape=_REFERENCE, keeps_space=True)
"""How XML writes texts."""
