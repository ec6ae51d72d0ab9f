"""Strings of apps: ``strings.xml`` of Android, ``.strings`` of Apple's systems.

Sources: https://developer.android.com/guide/topics/resources/string-resource;
https://developer.apple.com/library/archive/documentation/Cocoa/Conceptual/LoadingResources/,
"String Resources"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seqserve.documents.inline import Kind, Piece, joined_passages, passages
from seqserve.documents.messages import pieces
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.syntax import Syntax
from seqserve.documents.xml_source import (
    ENTITY,
    REFERENCE,
    Token,
    character,
    end_of,
    escaped,
    raw_of,
    tokens,
)

_CDATA = "<![CDATA["
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
    document = tokens("".join(lines))
    roots = (token.name for token in document if token.kind in (Kind.OPENING, Kind.EMPTY))
    if (root := next(roots)) != "resources":
        raise ParseError(1, f"begins XML of {root!r}, not of the 'resources' of Android")
    return joined_passages(_parts(document))


def _parts(document: Sequence[Token]) -> Iterator[str | Passage]:
    index, end_of_list = 0, 0
    while index < len(document):
        token = document[index]
        yield token.raw
        index += 1
        if token.kind is not Kind.OPENING:
            continue
        is_text = token.name == "string" or (token.name == "item" and index < end_of_list)
        is_kept = token.attributes().get("translatable") == "false"
        if is_text or is_kept:
            end = end_of(document, index - 1)
            inner = document[index:end]
            yield from [raw_of(inner)] if is_kept else _text(inner)
            index = end
        elif token.name in ("string-array", "plurals"):
            end_of_list = end_of(document, index - 1)


def _text(inner: Sequence[Token]) -> Iterator[str | Passage]:
    raw = raw_of(inner)
    if _RESOURCE.fullmatch(raw):
        yield raw
    elif len(inner) == 1 and raw.startswith(_CDATA):
        yield _CDATA
        yield from passages([*pieces(raw[len(_CDATA) : -3], _IN_CDATA)], _IN_CDATA)
        yield "]]>"
    else:
        yield from passages([*_android_pieces(inner)], _ANDROID)


def _android_pieces(inner: Sequence[Token]) -> Iterator[Piece]:
    index = 0
    while index < len(inner):
        token = inner[index]
        end = index + 1
        if token.kind is Kind.TEXT:
            yield from _quoted(token.raw, len(inner) == 1)
        elif token.kind is Kind.OPENING and token.name == "g":
            end = end_of(inner, index) + 1
            yield Piece(Kind.PLACEHOLDER, raw_of(inner[index:end]))
        else:
            yield Piece(token.kind, token.raw, token.name)
        index = end


def _quoted(raw: str, is_whole: bool) -> Iterator[Piece]:
    is_quoted = is_whole and len(raw) > 1 and raw[0] == raw[-1] == '"' and raw[-2] != "\\"
    if is_quoted:
        yield Piece(Kind.BREAK, '"')
        raw = raw[1:-1]
    yield from pieces(raw, _ANDROID, others=ENTITY, is_whole=is_whole)
    if is_quoted:
        yield Piece(Kind.BREAK, '"')


def _android_character(escape: re.Match[str]) -> str:
    raw = escape[0]
    if raw[0] == "&":
        return character(raw)
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
