"""Strings of apps: ``strings.xml`` of Android, ``.strings`` of Apple's systems.

Sources: https://developer.android.com/guide/topics/resources/string-resource;
https://developer.apple.com/library/archive/documentation/Cocoa/Conceptual/LoadingResources/,
"String Resources"."""

import html
import re
from collections.abc import Callable, Iterator

from seqserve.documents.inline import passages
from seqserve.documents.messages import pieces
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.pieces import Kind, Piece
from seqserve.documents.syntax import IN_C, UNICODE, Syntax, backslashes
from seqserve.documents.xml_source import ENTITY, REFERENCE, Node, Role, escaped
from seqserve.documents.xml_text import Table

# A resource, whose name replaces a text.
_RESOURCE = re.compile(r"\s*[@?][\w.:/+-]+\s*")
# And line ends, which mean a space.
_BACKSLASH = rf"{UNICODE}|\\.|\"|(?<![ \t])[ \t]*+[\r\n]\s*+"
_ANDROID_CHARACTERS = {"n": "\n", "t": "\t"}
_ANDROID_SPECIAL = re.compile(r"[\\'\"\n\t]|^[@?]")
_ANDROID_WRITTEN = {"\n": r"\n", "\t": r"\t"}


def _role(node: Node, parent: Node) -> Role | None:
    if node.attributes.get("translatable") == "false":
        return Role.MARKED
    is_item = parent.name in ("string-array", "plurals") or node.attributes.get("type") == "string"
    if node.name != "string" and (node.name != "item" or not is_item):
        return None
    return Role.DATA if _RESOURCE.fullmatch(node.inner) else Role.BLOCK


def _android(escape: re.Pattern[str], around: Callable[[str], str]) -> Syntax:
    # Quotes without a backslash are not shown.
    syntax = backslashes(
        *(escape, _ANDROID_SPECIAL, _ANDROID_CHARACTERS, _ANDROID_WRITTEN),
        other=lambda raw: " " if raw.isspace() else html.unescape(raw).replace('"', ""),
    )
    return syntax._replace(write=lambda text: around(syntax.write(text)))


_ANDROID = _android(re.compile(rf"{REFERENCE}|{_BACKSLASH}", re.S), escaped)
_IN_CDATA = _android(re.compile(_BACKSLASH, re.S), lambda text: text.replace("]]>", "]] >"))


def _texts(raw: str, syntax: Syntax, *, is_alone: bool) -> Iterator[Piece]:
    is_quoted = is_alone and len(raw) > 1 and raw[0] == raw[-1] == '"' and raw[-2] != "\\"
    quote = [Piece(Kind.BREAK, '"')] * is_quoted
    yield from quote
    text = raw[1:-1] if is_quoted else raw
    yield from pieces(text, syntax, others=ENTITY, is_whole=is_alone)
    yield from quote


ANDROID = Table(
    root="resources",
    roles={"g": Role.PROTECTED},
    other=Role.INLINE,
    role=_role,
    texts=_texts,
    syntax=_ANDROID,
    in_cdata=_IN_CDATA,
)
"""Placeholders and tags, also ``xliff:g``, follow the words of a text. Resources with
``translatable="false"``, comments and names of other resources stay."""


_STRING = r'"(?:[^"\\]|\\.)*+"'
_SPACE = r"(?>\s|/\*.*?\*/|//[^\r\n]*)"
_ENTRY = re.compile(
    rf"{_SPACE}*+(?:\Z|(?:{_STRING}|(?:[\w.$-]|/(?![*/]))++){_SPACE}*+(?:={_SPACE}*+\"(?P<value>(?:[^\"\\]|\\.)*+)\"{_SPACE}*+)?;)",
    re.S,
)
_ESCAPE = re.compile(rf"{UNICODE}|\\[0-7]{{3}}|\\.", re.S)
_APPLE_SPECIAL = re.compile(r'["\\\n\r\t]')
_APPLE_WRITTEN = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_APPLE = backslashes(_ESCAPE, _APPLE_SPECIAL, IN_C, _APPLE_WRITTEN)


def parse_apple(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each value."""
    return passages([*_apple_pieces("".join(lines))], _APPLE)


def _apple_pieces(source: str) -> Iterator[Piece]:
    end = at = 0
    while at < len(source):
        entry = _ENTRY.match(source, at)
        if entry is None:
            behind = len(source) - len(source[at:].lstrip())
            line = source.count("\n", 0, behind) + 1
            raise ParseError(line, 'is not an entry "key" = "value"; of a .strings file')
        if entry["value"] is not None:
            yield Piece(Kind.BREAK, source[end : entry.start("value")])
            yield from pieces(entry["value"], _APPLE)
            end = entry.end("value")
        at = entry.end()
    yield Piece(Kind.BREAK, source[end:])


def _resx_role(node: Node, parent: Node) -> Role | None:
    if node.name != "value" or parent.name != "data":
        return None
    told = parent.attributes
    if told.keys() & {"type", "mimetype"} or told.get("name", "").startswith(">>"):
        # An object, or what the designer of a form keeps.
        return Role.DATA
    notes = (each.text for each in parent.elements() if each.name == "comment")
    return Role.MARKED if any("{Locked}" in note for note in notes) else Role.BLOCK


RESX = Table(
    root="root",
    roles={},
    role=_resx_role,
    texts=lambda raw, syntax, is_alone: pieces(raw, syntax, others=ENTITY, is_whole=is_alone),
)
"""The values that are texts; comments stay, and what a comment marks as ``{Locked}``."""
