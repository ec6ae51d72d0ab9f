"""JSON lines: one field of each object is a passage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from seqserve.documents.passage import Lines, Passage, Translation


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
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        return read(fault=f"is not JSON: {error}")  # type: ignore[no-any-return]
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        return read(fault=f"has no text in the field {field!r}")  # type: ignore[no-any-return]

    def written(translation: Translation) -> str:
        return json.dumps({**value, field: translation.text}, ensure_ascii=False)

    return read(text=text, written=written)  # type: ignore[no-any-return]
