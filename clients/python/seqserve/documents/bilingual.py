"""Texts with a separate place for their translation, as in PO and XLIFF."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from seqserve.documents.inline import Piece, passages
from seqserve.documents.passage import Passage, Translation
from seqserve.documents.syntax import Syntax


def target(
    source: Iterable[Piece], syntax: Syntax, *, kept: str = "", opening: str = "", closing: str = ""
) -> Passage:
    """Returns the passage of a place for a translation.

    Args:
        kept: The present text; it stays if there is no translation.
        opening: Text before a translation.
        closing: Text after a translation.
    """
    parts = [*passages([*source], syntax)]
    texts = [index for index, part in enumerate(parts) if part.has_words]
    if not texts:
        return Passage(line=0, source=kept)
    if len(texts) > 1:
        fault = "cannot be translated in one piece: it is too long, or a choice of several texts"
        return Passage(line=0, source=kept, fault=fault)
    [index] = texts
    part = parts[index]
    opening += "".join(each.before + each.source for each in parts[:index]) + part.before
    closing = "".join(each.before + each.source for each in parts[index + 1 :]) + closing
    return part.changed(
        partial(_within, opening, closing),
        before="",
        source=kept,
        written=partial(_written, part, opening, closing),
    )


def _written(part: Passage, opening: str, closing: str, translation: Translation) -> str:
    return f"{opening}{part.written(translation)}{closing}"


def _within(opening: str, closing: str, parts: Iterator[Passage]) -> Iterator[Passage]:
    for each in parts:
        yield replace(each, before=opening + each.before)
        opening = ""
    yield Passage(line=0, before=opening + closing)
