"""Documents translated by a model that answers each passage in capitals, word by word."""

from __future__ import annotations

import re

from seqserve.documents.passage import Link, Passage, Translation

from .marking import units


def capitals(passage: Passage) -> Translation:
    """A translation whose words are those of the source in capitals; what is kept stays."""
    links = tuple(Link(*unit.span(), *unit.span()) for unit in units(passage.text, passage))
    kept = "|".join(re.escape(each) for each in passage.kept) or r"(?!)"
    parts = re.split(f"({kept})", passage.text)
    text = "".join(part if part in passage.kept else part.upper() for part in parts)
    return Translation(text, links)


def in_capitals(passages: list[Passage]) -> str:
    """The document with each of its passages in capitals."""
    return "".join(
        each.before + (each.written(capitals(each)) if each.has_words else each.source)
        for each in passages
    )
