"""JSON lines: one field of each object is a passage; all else stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from seqserve.documents.json_syntax import DECODER, SYNTAX
from seqserve.documents.passage import Lines, Passage, Translation

_MOST_SHOWN = 200
_SPACE = re.compile(r"[ \t\n\r]*")


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
        value = DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        yield Passage(line=0, source=body, fault=f"is not JSON: {error}")
        return
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        yield Passage(line=0, source=body, fault=without_text(value, field))
        return
    begin, end = place_of(body, field)
    before = body[: begin + 1]
    for source in SYNTAX.parts(body[begin + 1 : end - 1]):
        part = SYNTAX.read(source)
        yield Passage(line=0, before=before, source=source, text=part, written=_written)
        before = ""
    yield Passage(line=0, before=body[end - 1 :])


def without_text(value: object, field: str) -> str:
    """Describes a value that is no object, or one without a text in a field."""
    if not isinstance(value, dict):
        return f"is not an object, so it has no text in the field {field!r}"
    names = [repr(name) for name, member in value.items() if isinstance(member, str)]
    others = f"; it has one in {', '.join(names)}" if names else ""
    return f"has no text in the field {field!r}{others}"[:_MOST_SHOWN]


def _written(translation: Translation) -> str:
    return SYNTAX.write(translation.text)


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
