r"""PO, the files of gettext: texts without a translation get one; all else stays.

Source: https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.messages import pieces, target
from seqserve.documents.passage import Lines, ParseError, Passage, joined_passages
from seqserve.documents.syntax import IN_C, backslashes

_STRING = r'"(?:[^"\\\r\n]|\\.)*"'
_END = r"[ \t]*(?:\r\n|\r|\n|\Z)"
_STATEMENT = re.compile(
    r"[ \t]*(?P<keyword>msgctxt|msgid_plural|msgid|msgstr)(?:\[(?P<form>\d+)\])?[ \t]*"
    rf'"(?P<raw>{_STRING[1:-1]}(?:"{_END}[ \t]*{_STRING[:-1]})*)"{_END}'
)
# Comments, and names of what the entries after them belong to.
_OTHER = re.compile(rf"{_END}|[ \t]*#[^\r\n]*{_END}|[ \t]*domain[ \t]+{_STRING}{_END}")
_LANGUAGE = re.compile(r"((?:^|\"|\\n)Language:[ \t]*)([\w.@-]*)")
# What a template has in place of its plural forms, and those of languages. Source:
# https://www.gnu.org/software/gettext/manual/html_node/Plural-forms.html.
_UNTOLD = re.compile(r"nplurals=INTEGER; plural=EXPRESSION;")
_FEW = "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"
_PLURALS = {
    "1; plural=0;": "id ja ko lo ms th vi zh",
    "2; plural=(n != 1);": "bg ca da de el en eo es et fi he hu it nb nl nn no pt sv tr",
    "2; plural=(n > 1);": "fr pt_BR",
    "3; plural=(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2);": "cs sk",
    f"3; plural=(n==1 ? 0 : {_FEW});": "pl",
    f"3; plural=(n%10==1 && n%100!=11 ? 0 : {_FEW});": "be bs hr ru sr uk",
}
_PLURAL_OF = {code: rule for rule, codes in _PLURALS.items() for code in codes.split()}
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


def parse(lines: Lines, languages: Languages = UNKNOWN) -> Iterator[Passage]:
    """Yields a passage for each translation that is empty; the header names its language.

    The header of a template gets the plural forms of the language, if it is known.
    The first plural form is the translation of the singular, the others of the plural. Forms that
    the header of the document counts and an entry lacks are added.
    """
    return joined_passages(_parts("".join(lines), languages))


def _parts(source: str, languages: Languages) -> Iterator[str | Passage]:
    end = forms = 0
    is_template = False
    for entry in _entries(source):
        texts = {each.keyword: each for each in entry}
        if _SYNTAX.read(texts["msgid"].raw):
            yield source[end : entry[0].begin]
            yield from _translations(entry, texts, forms, is_template, source)
            end = entry[-1].end
            continue
        header = texts["msgstr"]
        yield source[end : header.begin]
        told = _with_forms(header.raw, languages.locale("")) if languages.target else header.raw
        yield _LANGUAGE.sub(lambda named: named[1] + languages.locale(named[2]), told)
        end = header.begin + len(header.raw)
        if count := _FORMS.search(_SYNTAX.read(told)):
            forms = int(count[1])
            is_template = told != header.raw
    yield source[end:]


def _with_forms(header: str, code: str) -> str:
    rule = _PLURAL_OF.get(code) or _PLURAL_OF.get(code.partition("_")[0])
    told = _UNTOLD.sub(f"nplurals={rule}", header) if rule else header
    return told.replace("charset=CHARSET", "charset=UTF-8")


def _translations(
    entry: list[_Statement],
    texts: dict[str, _Statement],
    forms: int,
    is_template: bool,
    source: str,
) -> Iterator[str | Passage]:
    places = [each for each in entry if each.keyword == "msgstr"]
    end = entry[0].begin
    for before, place in pairwise(entry):
        if is_template and (place.form or 0) >= forms:
            # A template has two forms, and its language has fewer.
            yield source[end : before.end]
            end = place.end
        elif place.keyword == "msgstr" and not _SYNTAX.read(place.raw):
            yield source[end : place.begin]
            yield _target(_text(texts, place.form, forms), kept=place.raw)
            end = place.begin + len(place.raw)
    last = places[-1]
    yield source[end : last.end]
    if "msgid_plural" not in texts or any(_SYNTAX.read(each.raw) for each in places):
        return
    line_end = source[last.begin + len(last.raw) + 1 : last.end].strip(" \t")
    for form in range(len(places), forms):
        # The last line of the document may lack its end.
        start = "" if line_end or form > len(places) else "\n"
        opening, closing = f'{start}msgstr[{form}] "', '"' + (line_end or "\n")
        yield _target(texts["msgid_plural"], opening=opening, closing=closing)


def _target(text: _Statement, **around: str) -> Passage:
    return target(pieces(text.raw, _SYNTAX), _SYNTAX, **around)


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
            raise ParseError(line, "is not a line of a PO file: neither a keyword nor a comment")
        line += match[0].count("\n")
        at = match.end()
