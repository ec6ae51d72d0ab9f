r"""``strings.xml`` of Android: strings, items of arrays and of plurals are passages.

Source: https://developer.android.com/guide/topics/resources/string-resource.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seqserve.documents.inline import Kind, Piece, assembled, passages
from seqserve.documents.passage import Lines, Malformed, Passage
from seqserve.documents.placeholders import pieces
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
# A resource, whose name stands in the place of a text.
_RESOURCE = re.compile(r"\s*[@?][\w.:/+-]+\s*")
_BACKSLASH = r"\\u[\da-fA-F]{4}|\\."
_CHARACTERS = {"n": "\n", "t": "\t"}
_SPECIAL = re.compile(r"[\\'\"\n\t]|^[@?]")
_WRITTEN = {"\n": r"\n", "\t": r"\t"}


def parse(lines: Lines) -> Iterator[Passage]:
    r"""Yields a passage for each text; placeholders and tags, also ``xliff:g``, follow its words.

    Resources with ``translatable="false"``, comments and names of other resources stay.

    Raises:
        Malformed: It is not well-formed XML, or no ``resources``.
    """
    document = tokens("".join(lines))
    roots = (token.name for token in document if token.kind in (Kind.OPENING, Kind.EMPTY))
    if (root := next(roots)) != "resources":
        raise Malformed(1, f"begins XML of {root!r}, not of the 'resources' of Android")
    return assembled(_parts(document))


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
        yield from passages([*_pieces(inner)], _SYNTAX)


def _pieces(inner: Sequence[Token]) -> Iterator[Piece]:
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
    """Divides a text; the quotes around all of it, which keep white space, stay."""
    is_quoted = is_whole and len(raw) > 1 and raw[0] == raw[-1] == '"' and raw[-2] != "\\"
    if is_quoted:
        yield Piece(Kind.BREAK, '"')
        raw = raw[1:-1]
    yield from pieces(raw, _SYNTAX, others=ENTITY, is_whole=is_whole)
    if is_quoted:
        yield Piece(Kind.BREAK, '"')


def _character(escape: re.Match[str]) -> str:
    raw = escape[0]
    if raw[0] == "&":
        return character(raw)
    return chr(int(raw[2:], 16)) if len(raw) > 2 else _CHARACTERS.get(raw[1], raw[1])


def _with_backslashes(text: str) -> str:
    return _SPECIAL.sub(lambda match: _WRITTEN.get(match[0], rf"\{match[0]}"), text)


def _syntax(escape: re.Pattern[str], *, is_cdata: bool) -> Syntax:
    return Syntax(
        read=lambda raw: escape.sub(_character, raw),
        write=lambda text: (
            _with_backslashes(text).replace("]]>", "]] >")
            if is_cdata
            else escaped(_with_backslashes(text))
        ),
        escape=escape,
        keeps_space=True,
    )


_SYNTAX = _syntax(re.compile(rf"{REFERENCE}|{_BACKSLASH}", re.S), is_cdata=False)
_IN_CDATA = _syntax(re.compile(_BACKSLASH, re.S), is_cdata=True)
