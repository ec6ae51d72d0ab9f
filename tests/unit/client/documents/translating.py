"""Documents translated by a model that answers each passage in capitals."""

from __future__ import annotations

from tests.support.capitals import capitals

from seqserve.documents.passage import Passage


def in_capitals(passages: list[Passage]) -> str:
    """The document with each of its passages in capitals."""
    return "".join(
        each.before + (each.written(capitals(each)) if each.has_words else each.source)
        for each in passages
    )
