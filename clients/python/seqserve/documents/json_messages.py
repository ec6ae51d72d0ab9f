"""JSON that a program keeps its texts in: all texts with words are passages, and no key is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.json_syntax import DECODER, SYNTAX
from seqserve.documents.message_format import message_pieces
from seqserve.documents.passage import Lines, Malformed, Passage

_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each text in objects and lists, whatever their depth.

    Raises:
        Malformed: It is not JSON.
    """
    source = "".join(lines)
    try:
        DECODER.decode(source)
    except RecursionError:
        raise Malformed(1, "begins JSON that is too deep") from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise Malformed(line, f"is not JSON: {getattr(error, 'msg', error)}") from None
    return passages([*_pieces(source)], SYNTAX)


def _pieces(source: str) -> Iterator[Piece]:
    end = 0
    for text in _TEXT.finditer(source):
        if text[2] is None:
            yield Piece(Kind.BREAK, source[end : text.start(1)])
            yield from message_pieces(text[1], SYNTAX)
            end = text.end(1)
    yield Piece(Kind.BREAK, source[end:])
