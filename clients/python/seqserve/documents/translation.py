"""Between passages and calls: what a call is sent for a passage, and the translation it returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from seqserve.decoding import GenerateOptions
from seqserve.documents.passage import Link, Passage, Translation
from seqserve.results import Hypothesis, Result


def source_of(passage: Passage) -> tuple[str, GenerateOptions]:
    """Returns the source of a passage, and what its markup needs beside its text."""
    options: GenerateOptions = {}
    if passage.divided:
        options["return_alignment"] = True
    if passage.kept:
        options["keep"] = list(passage.kept)
    return passage.text, options


def parts_of(passage: Passage) -> Iterator[Passage]:
    """Divides a passage whose markup cannot be placed; the parts, joined, are the passage."""
    before = passage.before
    for part in passage.divided() if passage.divided else ():
        yield replace(part, line=passage.line + part.line - 1, before=before + part.before)
        before = ""


def translation_of(result: Result) -> Translation:
    """Takes the translation from a result, with the alignments of its segments."""
    links = _links(result.hypotheses[0], 0, 0)
    for segment in result.segments:
        source, target = segment.source_begin, segment.target_begin
        if segment.hypotheses:
            links += _links(segment.hypotheses[0], source, target)
        else:
            # It is in the text as it is.
            places = range(segment.source_end - source)
            links += [Link(source + n, source + n + 1, target + n, target + n + 1) for n in places]
    return Translation(result.text, tuple(links))


def _links(hypothesis: Hypothesis, source: int, target: int) -> list[Link]:
    """Places the alignment of a segment, by where it begins in both texts."""
    return [
        Link(
            source + token.source_begin,
            source + token.source_end,
            target + token.target_begin,
            target + token.target_end,
        )
        for token in hypothesis.alignment
    ]
