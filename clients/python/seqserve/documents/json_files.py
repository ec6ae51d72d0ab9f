"""JSON: passages are a field of each line, or all texts of a file of a program.

Source for how JSON writes texts: RFC 8259, section 7.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from json import JSONDecoder

from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.messages import message_pieces
from seqserve.documents.passage import Lines, ParseError, Passage, joined_passages
from seqserve.documents.syntax import UNICODE, Syntax

# No number is of interest, and an int of very many digits cannot be read.
DECODER = JSONDecoder(parse_int=float)
"""Reads JSON whose numbers mean nothing."""
_ESCAPE = re.compile(rf"{UNICODE}|\\.")


SYNTAX = Syntax(
    read=lambda raw: str(json.loads(f'"{raw}"')),
    write=lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    escape=_ESCAPE,
    keeps_space=True,
)
"""How JSON writes texts."""
_MOST_SHOWN = 200
_SPACE = re.compile(r"[ \t\n\r]*")


def parse_lines(lines: Lines, field: str) -> Iterator[Passage]:
    """Yields a passage for each object; the translation takes the place of the field's text."""
    return joined_passages(part for line in lines for part in _parts_of_line(line, field))


def _parts_of_line(line: str, field: str) -> Iterator[str | Passage]:
    body = line.strip()
    if not body:
        yield line
        return
    first = line.index(body)
    yield line[:first]
    try:
        value = DECODER.decode(body)
        text = value.get(field) if isinstance(value, dict) else None
        fault = "" if isinstance(text, str) else without_text(value, field)
    except (ValueError, RecursionError) as error:
        fault = f"is not JSON: {error}"
    if fault:
        yield Passage(line=0, source=body, fault=fault)
    else:
        begin, end = place_of(body, field)
        yield body[: begin + 1]
        yield from passages([Piece(Kind.TEXT, body[begin + 1 : end - 1])], SYNTAX)
        yield body[end - 1 :]
    yield line[first + len(body) :]


def without_text(value: object, field: str) -> str:
    """Describes a value that is not an object, or one without a text in a field."""
    if not isinstance(value, dict):
        return f"is not an object, so it has no text in the field {field!r}"
    names = [repr(name) for name, member in value.items() if isinstance(member, str)]
    others = f"; it has one in {', '.join(names)}" if names else ""
    return f"has no text in the field {field!r}{others}"[:_MOST_SHOWN]


def place_of(body: str, field: str) -> tuple[int, int]:
    """Finds where the value of a field of an object begins and ends; of equal names the last one
    counts."""
    place = 0, 0
    at = _behind_space(body, 1)
    while body[at] != "}":
        name, at = DECODER.raw_decode(body, at)
        begin = _behind_space(body, _behind_space(body, at) + 1)
        _, end = DECODER.raw_decode(body, begin)
        if name == field:
            place = begin, end
        at = _behind_space(body, end)
        if body[at] == ",":
            at = _behind_space(body, at + 1)
    return place


def _behind_space(body: str, at: int) -> int:
    space = _SPACE.match(body, at)
    return space.end() if space else at


_TEXT = re.compile(r'"((?:[^"\\]|\\.)*+)"(\s*+:)?')


def parse(
    lines: Lines, *, is_arb: bool = False, languages: Languages = UNKNOWN
) -> Iterator[Passage]:
    """Yields a passage for each text in objects and lists, whatever their depth.

    In files of Flutter, what keys with ``@`` have is about the texts; ``@@locale`` becomes the
    language of the translation. Source:
    https://github.com/google/app-resource-bundle/wiki/ApplicationResourceBundleSpecification.
    """
    source = "".join(lines)
    try:
        DECODER.decode(source)
    except RecursionError:
        raise ParseError(1, "begins JSON that is too deep") from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ParseError(line, f"is not JSON: {getattr(error, 'msg', error)}") from None
    return passages([*_pieces(source, is_arb, languages)], SYNTAX)


parse_arb = partial(parse, is_arb=True)


def _pieces(source: str, is_arb: bool, languages: Languages) -> Iterator[Piece]:
    end = behind = 0
    for text in _TEXT.finditer(source):
        if text.start() < behind:
            continue
        if is_arb and text[2] and text[1].startswith("@"):
            begin = _behind_space(source, text.end())
            value, behind = DECODER.raw_decode(source, begin)
            if text[1] == "@@locale" and isinstance(value, str):
                yield Piece(Kind.BREAK, f'{source[end:begin]}"{languages.locale(value)}"')
                end = behind
        elif text[2] is None:
            yield Piece(Kind.BREAK, source[end : text.start(1)])
            yield from message_pieces(text[1], SYNTAX)
            end = text.end(1)
    yield Piece(Kind.BREAK, source[end:])
