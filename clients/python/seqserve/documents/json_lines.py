"""JSON lines: one field of each object is a passage; all else stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from json import JSONDecoder

from seqserve.documents.passage import Lines, Passage, Translation, parts

# No number is of interest, and an int of very many digits cannot be read.
_DECODER = JSONDecoder(parse_int=float)
_SPACE = re.compile(r"[ \t\n\r]*")
# A character of a text as JSON writes it; two escapes may be one.
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\.|."
)


def parse(lines: Lines, field: str) -> Iterator[Passage]:
    """Yields a passage for each object; the translation takes the place of the field's text."""
    before = ""
    number = 0
    for number, line in enumerate(lines, start=1):
        body = line.strip()
        if not body:
            before += line
            continue
        begin = line.index(body)
        before += line[:begin]
        for passage in _passages(body, field):
            yield replace(passage, line=number, before=before + passage.before)
            before = ""
        before = line[begin + len(body) :]
    yield Passage(line=number, before=before)


def _passages(body: str, field: str) -> Iterator[Passage]:
    """Yields the passages of an object: one, or the parts of a long text."""
    try:
        value = _DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        yield Passage(line=0, source=body, fault=f"is not JSON: {error}")
        return
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        yield Passage(line=0, source=body, fault=f"has no text in the field {field!r}")
        return
    begin, end = _place(body, field)
    before = body[: begin + 1]
    characters = _CHARACTER.finditer(body, begin + 1, end - 1)
    for part in parts(text):
        source = "".join(character[0] for character in islice(characters, len(part)))
        yield Passage(line=0, before=before, source=source, text=part, written=_written)
        before = ""
    yield Passage(line=0, before=body[end - 1 :])


def _written(translation: Translation) -> str:
    return json.dumps(translation.text, ensure_ascii=False)[1:-1]


def _place(body: str, field: str) -> tuple[int, int]:
    """Finds where the value of a field begins and ends; of equal names the last one counts."""
    place = 0, 0
    at = _behind_space(body, 1)
    while body[at] != "}":
        name, at = _DECODER.raw_decode(body, at)
        begin = _behind_space(body, _behind_space(body, at) + 1)
        _, end = _DECODER.raw_decode(body, begin)
        if name == field:
            place = begin, end
        at = _behind_space(body, end)
        if body[at] == ",":
            at = _behind_space(body, at + 1)
    return place


def _behind_space(body: str, at: int) -> int:
    space = _SPACE.match(body, at)
    return space.end() if space else at
