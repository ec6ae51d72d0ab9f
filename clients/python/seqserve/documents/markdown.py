"""Markdown: text of paragraphs, headings, lists and tables is a passage; markup and code stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from seqserve.documents.passage import Lines, Passage

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_TARGET = r"\]\((?:[^()\\]|\\.|\([^()]*\))*\)|\]\[[^\]]*\]"
# Code, HTML and addresses, images, links around their texts, emphasis, a break at the end.
_MARKUP = re.compile(
    r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|<[^<>\s][^<>]*>"
    rf"|!\[[^\]]*(?:{_TARGET}|\])|{_TARGET}|\[\^[^\]]*\]|\[[ xX]\](?=\s)|[\[\]]"
    r"|\*+|(?<!\w)_+|_+(?!\w)|~~|\\$"
)


class _Piece(NamedTuple):
    begin: int
    """Where it begins in the document."""
    text: str
    is_text: bool


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each text that has no markup within it.

    The lines of a paragraph become one, unless breaks are marked. Code, addresses of links, images,
    HTML, and front matter stay as they are.
    """
    source = "".join(lines)
    before, line, counted = "", 1, 0
    for piece in _pieces(source):
        line += source.count("\n", counted, piece.begin)
        counted = piece.begin
        if piece.is_text and any(map(str.isalpha, piece.text)):
            yield Passage(line=line, before=before, source=piece.text, text=piece.text)
            before = ""
        else:
            before += piece.text
    yield Passage(line=line, before=before)


def _pieces(source: str) -> Iterator[_Piece]:
    """Divides a document into what is text and what is not."""
    front = _FRONT_MATTER.match(source)
    end = front.end() if front else 0
    yield _Piece(0, source[:end], is_text=False)
    rows = [*_LINE.finditer(source[end:])]
    # Where each line begins, or in it the next block: a row of a table has several.
    places = [end + row.start() for row in rows]
    ends = [end + row.end() for row in rows]
    for token in MarkdownIt("commonmark").enable("table").parse(source[end:]):
        if token.type != "inline" or not token.map:
            continue
        for begin, text, block_end in _texts(source, token, places, ends):
            yield _Piece(end, source[end:begin], is_text=False)
            yield from _inline(begin, text)
            end = block_end
    yield _Piece(end, source[end:], is_text=False)


def _texts(
    source: str, token: Token, places: list[int], ends: list[int]
) -> list[tuple[int, str, int]]:
    """Finds the text of a block in the document: one, or its lines if their breaks are marked.

    Returns:
        Where each begins, the text, and where it ends; nothing if the block is not found.
    """
    assert token.map
    number, last = token.map
    found = []
    for line in map(str.strip, token.content.split("\n")):
        # Marks of lists and quotes, and blank lines, are not in the content.
        while number < last and (place := source.find(line, places[number], ends[number])) < 0:
            number += 1
        if number >= last:
            return []
        places[number] = place + len(line)
        found.append((place, line, place + len(line)))
    if any(child.type == "hardbreak" for child in token.children or []):
        return found
    words = " ".join(line for _, line, _ in found)
    return [(found[0][0], words, found[-1][2])] if words.strip() else []


def _inline(begin: int, text: str) -> Iterator[_Piece]:
    end = 0
    for markup in _MARKUP.finditer(text):
        yield _Piece(begin, text[end : markup.start()], is_text=True)
        yield _Piece(begin, markup[0], is_text=False)
        end = markup.end()
    yield _Piece(begin, text[end:], is_text=True)
