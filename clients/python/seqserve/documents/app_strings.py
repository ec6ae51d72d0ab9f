"""Strings of apps: ``strings.xml`` of Android, ``.strings`` of Apple's systems.

Sources: https://developer.android.com/guide/topics/resources/string-resource;
https://developer.apple.com/library/archive/documentation/Cocoa/Conceptual/LoadingResources/,
"String Resources"."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from seqserve.documents.inline import joined_passages, passages
from seqserve.documents.messages import pieces
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.pieces import Kind, Piece
from seqserve.documents.syntax import IN_C, Syntax, backslashes
from seqserve.documents.xml_source import (
    ENTITY,
    REFERENCE,
    TEXT,
    Node,
    escaped,
    root_of,
)
from seqserve.documents.xml_text import Role, Table

# A resource, whose name replaces a text.
_RESOURCE = re.compile(r"\s*[@?][\w.:/+-]+\s*")
_BACKSLASH = r"\\u[\da-fA-F]{4}|\\."
_ANDROID_CHARACTERS = {"n": "\n", "t": "\t"}
_ANDROID_SPECIAL = re.compile(r"[\\'\"\n\t]|^[@?]")
_ANDROID_WRITTEN = {"\n": r"\n", "\t": r"\t"}


def parse_android(lines: Lines) -> Iterator[Passage]:
    r"""Yields a passage for each text; placeholders and tags, also ``xliff:g``, follow its words.

    Resources with ``translatable="false"``, comments and names of other resources stay.
    """
    document = _ANDROID_TABLE.read("".join(lines))
    if (root := root_of(document).name) != "resources":
        raise ParseError(1, f"begins XML of {root!r}, not of the 'resources' of Android")
    parts: list[str | Passage] = []
    _add(document, False, parts)
    return joined_passages(parts)


def _add(parent: Node, is_list: bool, parts: list[str | Passage]) -> None:
    for node in parent.children:
        if node.attributes.get("translatable") == "false":
            parts.append(Passage(line=1, source=node.raw, copied="marked"))
            continue
        parts.append(node.opening)
        is_item = is_list or node.attributes.get("type") == "string"
        if node.name == "string" or (node.name == "item" and is_item):
            parts += _text(node)
        else:
            _add(node, node.name in ("string-array", "plurals"), parts)
        parts.append(node.closing)


def _text(node: Node) -> Iterator[str | Passage]:
    if _RESOURCE.fullmatch(node.inner):
        yield Passage(line=1, source=node.inner, copied="data")
    elif [each.name for each in node.children] == [TEXT]:
        yield from passages([*_quoted(node.inner)], _ANDROID)
    else:
        yield from passages(_ANDROID_TABLE.pieces(node, is_text=True), _ANDROID)


def _quoted(raw: str) -> Iterator[Piece]:
    is_quoted = len(raw) > 1 and raw[0] == raw[-1] == '"' and raw[-2] != "\\"
    if is_quoted:
        yield Piece(Kind.BREAK, '"')
        raw = raw[1:-1]
    yield from pieces(raw, _ANDROID, others=ENTITY)
    if is_quoted:
        yield Piece(Kind.BREAK, '"')


def _android(escape: re.Pattern[str], around: Callable[[str], str]) -> Syntax:
    syntax = backslashes(
        escape, _ANDROID_SPECIAL, _ANDROID_CHARACTERS, _ANDROID_WRITTEN, other=html.unescape
    )
    return syntax._replace(write=lambda text: around(syntax.write(text)))


_ANDROID = _android(re.compile(rf"{REFERENCE}|{_BACKSLASH}", re.S), escaped)
_IN_CDATA = _android(re.compile(_BACKSLASH, re.S), lambda text: text.replace("]]>", "]] >"))


def _android_texts(raw: str, syntax: Syntax) -> Iterator[Piece]:
    return pieces(raw, syntax, others=ENTITY, is_whole=False)


_ANDROID_TABLE = Table(
    roles={"g": Role.PROTECTED},
    other=Role.INLINE,
    texts=_android_texts,
    syntax=_ANDROID,
    in_cdata=_IN_CDATA,
)


_STRING = r'"(?:[^"\\]|\\.)*+"'
_SPACE = r"(?>\s|/\*.*?\*/|//[^\r\n]*)"
_ENTRY = re.compile(
    rf"(?:{_STRING}|(?:[\w.$-]|/(?![*/]))++){_SPACE}*+(?:={_SPACE}*+\"(?P<value>(?:[^\"\\]|\\.)*+)\"{_SPACE}*+)?;",
    re.S,
)
_GAP = re.compile(rf"{_SPACE}*+", re.S)
_ESCAPE = re.compile(r"\\[uU][\da-fA-F]{4}|\\[0-7]{3}|\\.", re.S)
_APPLE_SPECIAL = re.compile(r'["\\\n\r\t]')
_APPLE_WRITTEN = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_APPLE = backslashes(_ESCAPE, _APPLE_SPECIAL, IN_C, _APPLE_WRITTEN)


def parse_apple(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each value."""
    return passages([*_apple_pieces("".join(lines))], _APPLE)


def _apple_pieces(source: str) -> Iterator[Piece]:
    end = at = 0
    while (at := _behind_gap(source, at)) < len(source):
        entry = _ENTRY.match(source, at)
        if entry is None:
            line = source.count("\n", 0, at) + 1
            raise ParseError(line, 'is no entry "key" = "value"; of a .strings file')
        if entry["value"] is not None:
            yield Piece(Kind.BREAK, source[end : entry.start("value")])
            yield from pieces(entry["value"], _APPLE)
            end = entry.end("value")
        at = entry.end()
    yield Piece(Kind.BREAK, source[end:])


def _behind_gap(source: str, at: int) -> int:
    gap = _GAP.match(source, at)
    return gap.end() if gap else at
