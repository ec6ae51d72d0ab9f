"""CSV and TSV: the cells of a column are passages; the others and all quotes stay.

Source: RFC 4180.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from seqserve.documents.messages import pieces, target
from seqserve.documents.passage import Lines, ParseError, Passage, Translation, joined_passages
from seqserve.documents.syntax import Syntax

_DELIMITERS = ",;\t|"
# The line with which Excel tells the delimiter.
_SEPARATOR = re.compile(r"\"?sep=([^\r\n\"])\"?(?:\r\n|\r|\n)", re.IGNORECASE)
_CELL = r'"(?:[^"]|"")*+"'


class _Cell(NamedTuple):
    begin: int
    raw: str
    column: int
    """Its number in its row, from 0."""
    row: int
    """Number of its row, from 1."""


def parse(lines: Lines, column: str) -> Iterator[Passage]:
    """Yields a passage for each cell of a column, which the first row names.

    The delimiter is a comma, a semicolon, a tab or a bar: the first one with which the first row
    has the column. A translation is quoted where it must be, or where its source is.
    """
    return joined_passages(_parts("".join(lines), column))


def _parts(source: str, column: str) -> Iterator[str | Passage]:
    told = _SEPARATOR.match(source)
    begin = told.end() if told else 0
    delimiter, number = _place(source[begin:], column, told[1] if told else _DELIMITERS)
    end = 0
    for cell in _cells(source, delimiter, begin):
        if cell.column == number and cell.row > 1:
            yield source[end : cell.begin]
            yield _passage(cell.raw, delimiter)
            end = cell.begin + len(cell.raw)
    yield source[end:]


def _place(source: str, column: str, delimiters: str) -> tuple[str, int]:
    names: list[str] = []
    for delimiter in delimiters:
        row: list[str] = []
        # With another delimiter its quotes may not go around cells.
        with suppress(ParseError):
            cells = takewhile(lambda cell: cell.row == 1, _cells(source, delimiter))
            row += (_text(cell.raw) for cell in cells)
        if column in row:
            return delimiter, row.index(column)
        names = max(names, row, key=len)
    others = ", ".join(filter(None, names))
    hint = f"; --column names one of {others}" if others else ", because it is empty"
    raise ParseError(1, f"has no column {column!r}{hint}")


def _cells(source: str, delimiter: str, at: int = 0) -> Iterator[_Cell]:
    mark = re.escape(delimiter)
    # Few programs quote cells between tabs, so quotes there may be of the text.
    quoted, plain = (r'"(?:[^"\r\n]|"")*+"', "") if delimiter == "\t" else (_CELL, '(?!")')
    pattern = re.compile(rf"(?P<cell>{quoted}|{plain}[^{mark}\r\n]*)(?P<end>{mark}|\r\n|\r|\n|\Z)")
    row, column, line = 1, 0, 1 + source.count("\n", 0, at)
    while at <= len(source):
        match = pattern.match(source, at)
        if match is None:
            raise ParseError(line, "has a cell with text outside its quotes")
        yield _Cell(at, match["cell"], column, row)
        line += len(re.findall(r"\r\n|\r|\n", match[0]))
        column = column + 1 if match["end"] == delimiter else 0
        row += column == 0
        if not match["end"]:
            return
        at = match.end()


def _text(raw: str) -> str:
    return raw[1:-1].replace('""', '"') if _is_quoted(raw) else raw


def _is_quoted(raw: str) -> bool:
    return bool(re.fullmatch(_CELL, raw))


def _passage(raw: str, delimiter: str) -> Passage:
    is_quoted = _is_quoted(raw)
    inner = raw[1:-1] if is_quoted else raw.replace('"', '""')
    text = pieces(inner, _QUOTED)
    passage = target(text, _QUOTED, kept=raw, opening='"', closing='"')
    if is_quoted or not passage.text:
        return passage
    return replace(passage, written=partial(_written, passage, delimiter))


def _written(passage: Passage, delimiter: str, translation: Translation) -> str:
    quoted = passage.written(translation)
    text = _text(quoted)
    return quoted if re.search(rf"[{re.escape(delimiter)}\r\n]|^\"", text) else text


_QUOTED = Syntax(
    read=lambda raw: raw.replace('""', '"'),
    write=lambda text: text.replace('"', '""'),
    escape=re.compile('""'),
    keeps_space=True,
)
