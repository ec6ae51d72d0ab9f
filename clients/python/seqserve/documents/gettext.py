r"""PO, the files of gettext: texts without a translation get one; all else stays.

Source: https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from seqserve.documents.bilingual import target
from seqserve.documents.messages import pieces
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.syntax import IN_C, backslashes

_STRING = r'"(?:[^"\\\r\n]|\\.)*"'
_END = r"[ \t]*(?:\r\n|\r|\n|\Z)"
_STATEMENT = re.compile(
    r"[ \t]*(?P<keyword>msgctxt|msgid_plural|msgid|msgstr)(?:\[(?P<form>\d+)\])?[ \t]*"
    rf'"(?P<raw>{_STRING[1:-1]}(?:"{_END}[ \t]*{_STRING[:-1]})*)"{_END}'
)
# Comments, and names of what the entries after them belong to.
_OTHER = re.compile(rf"{_END}|[ \t]*#[^\r\n]*{_END}|[ \t]*domain[ \t]+{_STRING}{_END}")
_FORMS = re.compile(r"nplurals\s*=\s*(\d{1,2})")
# A string may be written as several lines of strings.
_JOINT = rf'"{_END}[ \t]*"'
_ESCAPE = re.compile(rf"{_JOINT}|\\[0-7]{{1,3}}|\\x[0-9A-Fa-f]{{1,2}}|\\.")
_CHARACTERS = IN_C | {digit: chr(int(digit)) for digit in "01234567"}
_WRITTEN = {character: rf"\{letter}" for letter, character in IN_C.items()}
_WRITTEN |= {"\n": '\\n"\n"'}
_SPECIAL = re.compile(r'["\\\a\b\f\n\r\t\v]')
_SYNTAX = backslashes(_ESCAPE, _SPECIAL, _CHARACTERS, _WRITTEN, other=lambda joint: "")


class _Statement(NamedTuple):
    keyword: str
    form: int | None
    """The number of a plural form."""
    raw: str
    """Its string, as the document has it."""
    begin: int
    """Where its string begins in the document."""
    end: int
    """Where the next line begins."""
    line: int


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each translation that is empty.

    The first plural form is the translation of the singular, the others of the plural. Forms that
    the header of the document counts and an entry lacks are added.
    """
    source = "".join(lines)
    end, forms, line = 0, 0, 1
    for entry in _entries(source):
        texts = {each.keyword: each for each in entry}
        if not _SYNTAX.read(texts["msgid"].raw):
            if count := _FORMS.search(_SYNTAX.read(texts["msgstr"].raw)):
                forms = int(count[1])
            continue
        line = texts["msgid"].line
        for passage, end_of_passage in _places(entry, texts, forms, source, end):
            yield passage
            end = end_of_passage
    yield Passage(line=line, before=source[end:])


def _places(
    entry: list[_Statement], texts: dict[str, _Statement], forms: int, source: str, end: int
) -> Iterator[tuple[Passage, int]]:
    translations = [each for each in entry if each.keyword == "msgstr"]
    for place in translations:
        if not _SYNTAX.read(place.raw):
            text = _text(texts, place.form, forms)
            before = source[end : place.begin]
            passage = _target(text, before, kept=place.raw)
            end = place.begin + len(place.raw)
            yield passage, end
    last = translations[-1]
    if "msgid_plural" not in texts or any(_SYNTAX.read(each.raw) for each in translations):
        return
    text = texts["msgid_plural"]
    line_end = source[last.begin + len(last.raw) + 1 : last.end].strip(" \t")
    for form in range(len(translations), forms):
        before, end = source[end : last.end], last.end
        # The last line of the document may lack its end.
        start = "" if line_end or form > len(translations) else "\n"
        opening, closing = f'{start}msgstr[{form}] "', '"' + (line_end or "\n")
        yield _target(text, before, opening=opening, closing=closing), end


def _target(text: _Statement, before: str, **around: str) -> Passage:
    return target(pieces(text.raw, _SYNTAX), _SYNTAX, line=text.line, before=before, **around)


def _text(texts: dict[str, _Statement], form: int | None, forms: int) -> _Statement:
    is_singular = form is None or (form == 0 and forms != 1)
    return texts["msgid"] if is_singular else texts.get("msgid_plural", texts["msgid"])


def _entries(source: str) -> Iterator[list[_Statement]]:
    entry: list[_Statement] = []
    for statement in _statements(source):
        if entry and entry[-1].keyword == "msgstr" and statement.keyword != "msgstr":
            yield _checked(entry)
            entry = []
        entry.append(statement)
    if entry:
        yield _checked(entry)


def _checked(entry: list[_Statement]) -> list[_Statement]:
    keywords = [each.keyword for each in entry if each.keyword != "msgctxt"]
    is_plural = keywords[1:2] == ["msgid_plural"]
    if keywords[:1] != ["msgid"] or {*keywords[1 + is_plural :]} != {"msgstr"}:
        raise ParseError(entry[0].line, "begins an entry that is not of a msgid and its msgstr")
    return entry


def _statements(source: str) -> Iterator[_Statement]:
    at, line = 0, 1
    while at < len(source):
        match = _STATEMENT.match(source, at)
        if match:
            form = int(match["form"]) if match["form"] else None
            begin = match.start("raw")
            yield _Statement(match["keyword"], form, match["raw"], begin, match.end(), line)
        else:
            match = _OTHER.match(source, at)
        if match is None:
            raise ParseError(line, "is no line of a PO file: no keyword with a string, no comment")
        line += match[0].count("\n")
        at = match.end()
