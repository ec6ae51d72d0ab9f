"""The passages of documents, and «» around them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from seqserve.documents.formats import Format, parser_of
from seqserve.documents.passage import Passage, Translation

ANY_TEXT = {Format.TEXT, Format.MARKDOWN, Format.HTML, Format.SRT, Format.VTT, Format.JSON_LINES}
"""Formats whose documents may be any text; others refuse what is malformed."""
CUE = "1\r\n00:00:01,000 --> 00:00:02,000\r\n"


def passages_of(kind: Format, text: str, *, joins_lines: bool = False) -> list[Passage]:
    parser = parser_of(kind, field="text", column="text", joins_lines=joins_lines)
    return list(parser(re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)))


def marked(kind: Format, text: str, *, joins_lines: bool = False) -> str:
    """The document with each of its passages in place, marked."""
    return "".join(
        each.before
        + (each.written(Translation(f"«{each.text}»")) if each.has_words else each.source)
        for each in split(passages_of(kind, text, joins_lines=joins_lines))
    )


def units(text: str, passage: Passage) -> list[re.Match[str]]:
    """What a server aligns: kept texts, words and marks."""
    kept = map(re.escape, sorted(passage.kept, key=len, reverse=True))
    return [*re.finditer("|".join([*kept, r"\w+", r"[^\w\s]"]), text)]


def split(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Passages where those with markup are split at it."""
    for each in passages:
        if each.split_passages is None:
            yield each
        else:
            first, *others = each.split_passages()
            yield replace(first, before=each.before + first.before)
            yield from others
