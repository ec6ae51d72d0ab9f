"""Strings of apps: ``strings.xml`` of Android, ``.strings`` of Apple's systems.

Sources: https://developer.android.com/guide/topics/resources/string-resource;
https://developer.apple.com/library/archive/documentation/Cocoa/Conceptual/LoadingResources/,
"String Resources"."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from seqserve.documents.inline import joined_passages, passages
from seqserve.documents.messages import pieces
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.pieces import Kind, Piece
from seqserve.documents.syntax import Syntax
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
        if node.name == "string" or (node.name == "item" and is_list):
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


def _android_character(escape: re.Match[str]) -> str:
    raw = escape[0]
    if raw[0] == "&":
        return html.unescape(raw)
    return chr(int(raw[2:], 16)) if len(raw) > 2 else _ANDROID_CHARACTERS.get(raw[1], raw[1])


def _with_backslashes(text: str) -> str:
    return _ANDROID_SPECIAL.sub(lambda match: _ANDROID_WRITTEN.get(match[0], rf"\{match[0]}"), text)


def _syntax(escape: re.Pattern[str], *, is_cdata: bool) -> Syntax:
    return Syntax(
        read=lambda raw: escape.sub(_android_character, raw),
        write=lambda text: (
            _with_backslashes(text).replace("]]>", "]] >")
            if is_cdata
            else escaped(_with_backslashes(text))
        ),
        escape=escape,
        keeps_space=True,
    )


_ANDROID = _syntax(re.compile(rf"{REFERENCE}|{_BACKSLASH}", re.S), is_cdata=False)
_IN_CDATA = _syntax(re.compile(_BACKSLASH, re.S), is_cdata=True)


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
    rf"(?:{_STRING}|[\w.$/-]+){_SPACE}*+(?:={_SPACE}*+\"(?P<value>(?:[^\"\\]|\\.)*+)\"{_SPACE}*+)?;",
    re.S,
)
_GAP = re.compile(rf"{_SPACE}*+", re.S)
_ESCAPE = re.compile(r"\\[uU][\da-fA-F]{4}|\\[0-7]{3}|\\.", re.S)
_APPLE_CHARACTERS = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_APPLE_SPECIAL = re.compile(r'["\\\n\r\t]')
_APPLE_WRITTEN = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


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


def _apple_character(escape: re.Match[str]) -> str:
    code = escape[0][1:]
    if code[0] in "uU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if len(code) == 3 else _APPLE_CHARACTERS.get(code, code)


def _apple_read(raw: str) -> str:
    return _ESCAPE.sub(_apple_character, raw)


def _apple_write(text: str) -> str:
    return _APPLE_SPECIAL.sub(lambda match: _APPLE_WRITTEN.get(match[0], rf"\{match[0]}"), text)


_APPLE = Syntax(read=_apple_read, write=_apple_write, escape=_ESCAPE, keeps_space=True)
