"""Parts of an .odt file: paragraphs and headings are passages; spans and links follow their words.

Source: OASIS OpenDocument 1.3, part 3, sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Lines, Passage
from seqserve.documents.xml_source import XML, Token, tokens

_INLINE = {"span", "a"}
_POINTS = {"s", "tab", "bookmark", "bookmark-start", "bookmark-end", "soft-page-break"}
_SYNTAX = XML._replace(keeps_space=False)


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each paragraph; notes, frames and breaks divide it.

    Raises:
        Malformed: It is not well-formed XML.
    """
    return passages([*_pieces(tokens("".join(lines)))], _SYNTAX)


def _pieces(document: Sequence[Token]) -> Iterator[Piece]:
    # Whether the text within each element that is open is translated.
    levels = [False]
    for token in document:
        kind = Kind.BREAK
        is_of_text = token.raw.startswith(("<text:", "</text:"))
        if token.kind is Kind.TEXT and levels[-1]:
            kind = Kind.TEXT
        elif is_of_text and token.name in _POINTS and token.kind is Kind.EMPTY and levels[-1]:
            kind = Kind.EMPTY
        elif is_of_text and token.name in _INLINE and levels[-1]:
            kind = token.kind
        if token.kind is Kind.OPENING:
            is_paragraph = is_of_text and token.name in ("p", "h")
            levels.append(is_paragraph or (kind is Kind.OPENING and levels[-1]))
        elif token.kind is Kind.CLOSING:
            levels.pop()
        yield Piece(kind, token.raw, token.name)
