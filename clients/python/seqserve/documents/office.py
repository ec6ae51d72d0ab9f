"""Parts of a .docx or .odt file, of which paragraphs are passages.

In .docx, runs of text that follow each other are a passage. Runs whose format is not that of the
first one follow their words. A tab, a break, a field, a link and what is no text divide a
paragraph. In .odt, paragraphs and headings are passages; spans and links follow their
words.
Sources: ECMA-376, part 1, section 17.3; OASIS OpenDocument 1.3, part 3, sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from seqserve.documents.inline import Kind, Piece, joined_passages, passages
from seqserve.documents.passage import Lines, Passage, Translation, fits
from seqserve.documents.placement import Mark, placed
from seqserve.documents.xml_source import XML, Token, end_of, raw_of, tokens
from seqserve.words import has_words

_CLOSE = "</w:t></w:r>"
# What may be between runs of one text, at a place.
_DOCX_POINTS = {"bookmarkStart", "bookmarkEnd", "commentRangeStart", "commentRangeEnd", "proofErr"}


class _Run(NamedTuple):
    format: str
    """The properties of a run, as the document has them."""
    text: str
    pieces: tuple[Piece, ...]

    @property
    def opening(self) -> str:
        return f'<w:r>{self.format}<w:t xml:space="preserve">'


def parse_docx(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each text."""
    return joined_passages(_parts(tokens("".join(lines))))


def _parts(document: Sequence[Token]) -> Iterator[str | Passage]:
    index = 0
    runs: list[_Run] = []
    while index < len(document):
        token = document[index]
        end = end_of(document, index) + 1 if token.kind is Kind.OPENING else index + 1
        if token.raw.startswith("<w:") and (run := _run(document[index:end])):
            runs.append(run)
            index = end
            continue
        yield from _text(runs)
        runs = []
        yield token.raw
        index += 1
    yield from _text(runs)


def _run(element: Sequence[Token]) -> _Run | None:
    name, raw = element[0].name, raw_of(element)
    if name in _DOCX_POINTS and element[0].kind is Kind.EMPTY:
        kept = "" if name == "proofErr" else raw
        return _Run(kept, "", (Piece(Kind.BREAK, raw),))
    if name != "r" or element[0].kind is not Kind.OPENING:
        return None
    begin = 1
    if element[1].name == "rPr":
        begin = end_of(element, 1) + 1 if element[1].kind is Kind.OPENING else 2
    inner = element[begin:-1]
    tags = {token.name for token in inner if token.kind is not Kind.TEXT}
    if tags != {"t"}:
        return None
    pieces = [Piece(Kind.BREAK, raw_of(element[:begin]))]
    pieces += [
        Piece(Kind.TEXT if token.kind is Kind.TEXT else Kind.BREAK, token.raw) for token in inner
    ]
    pieces.append(Piece(Kind.BREAK, element[-1].raw))
    text = "".join(XML.read(token.raw) for token in inner if token.kind is Kind.TEXT)
    return _Run(raw_of(element[1:begin]), text, tuple(pieces))


def _text(runs: list[_Run]) -> Iterator[str | Passage]:
    pieces = [piece for run in runs for piece in run.pieces]
    raw = "".join(piece.raw for piece in pieces)
    text = "".join(run.text for run in runs)
    if not has_words(text):
        yield raw
        return
    if not fits(text):
        yield from passages(pieces, XML)
        return
    base = next(run for run in runs if has_words(run.text))
    inner = text.strip()
    first = text.index(inner)
    marks = _marks(runs, base, first, first + len(inner))
    head, tail = XML.write(text[:first]), XML.write(text[first + len(inner) :])
    opening, closing = f"{base.opening}{head}", f"{tail}{_CLOSE}"
    written = partial(_written, opening, closing, inner, tuple(marks))
    split = partial(passages, pieces, XML) if marks else None
    yield Passage(line=1, source=raw, text=inner, written=written, split_passages=split)


def _marks(runs: list[_Run], base: _Run, first: int, last: int) -> list[Mark]:
    marks: list[Mark] = []
    end = 0
    for run in runs:
        begin, end = end, end + len(run.text)
        place = min(max(begin, first), last) - first
        if not run.text and run.format:
            marks.append(Mark(place, place, f"{_CLOSE}{run.format}{base.opening}"))
        elif run.text.strip() and run.format != base.format:
            end_place = min(end, last) - first
            marks.append(
                Mark(place, end_place, f"{_CLOSE}{run.opening}", f"{_CLOSE}{base.opening}")
            )
    return marks


def _written(
    opening: str, closing: str, text: str, marks: tuple[Mark, ...], translation: Translation
) -> str:
    return f"{opening}{placed(translation, text, marks, XML.write)}{closing}"


_INLINE = {"span", "a"}
_ODT_POINTS = {"s", "tab", "bookmark", "bookmark-start", "bookmark-end", "soft-page-break"}
_ODT = XML._replace(keeps_space=False)


def parse_odt(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each paragraph; notes, frames and breaks divide it."""
    return passages([*_odt_pieces(tokens("".join(lines)))], _ODT)


def _odt_pieces(document: Sequence[Token]) -> Iterator[Piece]:
    # Whether the text within each element that is open is translated.
    levels = [False]
    for token in document:
        kind = Kind.BREAK
        is_of_text = token.raw.startswith(("<text:", "</text:"))
        if token.kind is Kind.TEXT and levels[-1]:
            kind = Kind.TEXT
        elif is_of_text and token.name in _ODT_POINTS and token.kind is Kind.EMPTY and levels[-1]:
            kind = Kind.EMPTY
        elif is_of_text and token.name in _INLINE and levels[-1]:
            kind = token.kind
        if token.kind is Kind.OPENING:
            is_paragraph = is_of_text and token.name in ("p", "h")
            levels.append(is_paragraph or (kind is Kind.OPENING and levels[-1]))
        elif token.kind is Kind.CLOSING:
            levels.pop()
        yield Piece(kind, token.raw, token.name)
