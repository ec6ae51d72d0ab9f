r"""``.strings`` of Apple's systems: the values are passages; keys and comments stay.

Source: https://developer.apple.com/library/archive/documentation/Cocoa/Conceptual/LoadingResources/,
"String Resources".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Lines, Malformed, Passage
from seqserve.documents.placeholders import pieces
from seqserve.documents.syntax import Syntax

_STRING = r'"(?:[^"\\]|\\.)*"'
_SPACE = r"(?:\s|/\*.*?\*/|//[^\r\n]*)"
_ENTRY = re.compile(
    rf"(?:{_STRING}|[\w.$/-]+){_SPACE}*(?:={_SPACE}*\"(?P<value>(?:[^\"\\]|\\.)*)\"{_SPACE}*)?;",
    re.S,
)
_GAP = re.compile(rf"{_SPACE}*", re.S)
_ESCAPE = re.compile(r"\\[uU][\da-fA-F]{4}|\\[0-7]{3}|\\.", re.S)
_CHARACTERS = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_SPECIAL = re.compile(r'["\\\n\r\t]')
_WRITTEN = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each value.

    Raises:
        Malformed: What is between comments is no entry ``"key" = "value";``.
    """
    return passages([*_pieces("".join(lines))], _SYNTAX)


def _pieces(source: str) -> Iterator[Piece]:
    end = at = 0
    while (at := _behind_gap(source, at)) < len(source):
        entry = _ENTRY.match(source, at)
        if entry is None:
            line = source.count("\n", 0, at) + 1
            raise Malformed(line, 'is no entry "key" = "value"; of a .strings file')
        if entry["value"] is not None:
            yield Piece(Kind.BREAK, source[end : entry.start("value")])
            yield from pieces(entry["value"], _SYNTAX)
            end = entry.end("value")
        at = entry.end()
    yield Piece(Kind.BREAK, source[end:])


def _behind_gap(source: str, at: int) -> int:
    gap = _GAP.match(source, at)
    return gap.end() if gap else at


def _character(escape: re.Match[str]) -> str:
    code = escape[0][1:]
    if code[0] in "uU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if len(code) == 3 else _CHARACTERS.get(code, code)


def _read(raw: str) -> str:
    return _ESCAPE.sub(_character, raw)


def _write(text: str) -> str:
    return _SPECIAL.sub(lambda match: _WRITTEN.get(match[0], rf"\{match[0]}"), text)


_SYNTAX = Syntax(read=_read, write=_write, escape=_ESCAPE, keeps_space=True)
