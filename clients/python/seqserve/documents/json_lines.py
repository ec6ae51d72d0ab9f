"""JSON lines: one field of each object is a passage; all else stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from json import JSONDecoder
from typing import Any

from seqserve.documents.passage import Lines, Passage, Translation

# No number is of interest, and an int of very many digits cannot be read.
_DECODER = JSONDecoder(parse_int=float)
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
        read = partial(Passage, line=number, before=before + line[:begin], source=body)
        yield _passage(read, body, field)
        before = line[begin + len(body) :]
    yield Passage(line=number, before=before)


def _passage(read: Any, body: str, field: str) -> Passage:
    try:
        value = _DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        return read(fault=f"is not JSON: {error}")  # type: ignore[no-any-return]
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        return read(fault=f"has no text in the field {field!r}")  # type: ignore[no-any-return]
    begin, end = _place(body, field)

    def written(translation: Translation) -> str:
        return body[:begin] + json.dumps(translation.text, ensure_ascii=False) + body[end:]

    return read(text=text, written=written)  # type: ignore[no-any-return]


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
