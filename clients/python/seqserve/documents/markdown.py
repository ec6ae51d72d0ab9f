"""Markdown: text of paragraphs, headings, lists and tables is a passage; code stays as it is.

Text is read without its escapes, and written with the escapes that it needs.
Source: https://spec.commonmark.org/0.31.2/, sections 2.4, 2.5 and 4 to 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.utils import unescapeAll
from markdown_it.rules_block import StateBlock, reference
from markdown_it.token import Token

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Lines, Passage
from seqserve.documents.syntax import Syntax
from seqserve.words import ADDRESS

_PUNCTUATION = r"[!-/:-@\[-`{-~]"
# Characters that are no markup.
_ESCAPE = rf"\\{_PUNCTUATION}"
_ESCAPED = re.compile(rf"\\({_PUNCTUATION})")
# What may be markup within a line.
_MARK = (
    rf"\\(?={_PUNCTUATION}|$)|[`\[\]]|(?<!\s)\*|\*(?!\s)|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~"
    r"|<(?=[A-Za-z/!?])|&(?=#?\w+;)"
)
# What is markup in extensions of Markdown alone.
_OF_EXTENSIONS = "#$@^{|}~"
# What makes a line a heading, an item, a quote, or the line above a heading.
_START = re.compile(r"(?=#{1,6}(?!\S)|[-+](?!\S)|-[- ]*$|=+\s*$|>)|\d{1,9}(?=[.)](?!\S))")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_CELLS = ("td_open", "th_open")
_TARGET = r"\]\((?:[^()\\]|\\.|\([^()]*\))*\)|\]\[[^\]]*\]"
_NOTE = r"^\[\^[^\]\s]+\]:"
# Escapes; footnotes, addresses, code, HTML; images; links around their texts; emphasis; others.
_MARKUP = re.compile(
    rf"(?P<escape>{_ESCAPE})|{_NOTE}|{ADDRESS}"
    r"|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|<[^<>\s][^<>]*>"
    rf"|(?P<image>!\[[^\]]*(?:{_TARGET}|\]))|(?P<target>{_TARGET})|\[\^[^\]]*\]|\[[ xX]\](?=\s)"
    r"|(?P<link>\[)|\]|(?P<emphasis>\*+|(?<!\w)_+|_+(?!\w)|~~)|\\$"
)


class _Block(NamedTuple):
    begin: int
    """Where it begins in the document."""
    raw: str
    """As the document has it."""
    text: str = ""
    """Its lines, without what comes before them; empty if it has nothing to translate."""
    begins_line: bool = False
    """Whether its first characters may make it another kind of block."""
    is_cell: bool = False


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for the text of each block; links and emphasis follow its words.

    The lines of a paragraph become one, unless breaks are marked. Code, addresses of links, images,
    HTML, and front matter stay as they are.
    """
    source = "".join(lines)
    before, line, counted = "", 1, 0
    for block in _blocks(source):
        line += source.count("\n", counted, block.begin)
        counted = block.begin
        parts = [*_passages(block)]
        if not any(part.has_words for part in parts):
            before += block.raw
            continue
        for passage in parts:
            before += passage.before
            if passage.has_words:
                yield replace(passage, line=line, before=before)
                before = ""
            else:
                before += passage.source
    yield Passage(line=line, before=before)


def _blocks(source: str) -> Iterator[_Block]:
    front = _FRONT_MATTER.match(source)
    end = front.end() if front else 0
    yield _Block(0, source[:end])
    rows = [*_LINE.finditer(source[end:])]
    # Where each line begins, or in it the next block: a row of a table has several.
    places = [end + row.start() for row in rows]
    ends = [end + row.end() for row in rows]
    tokens = _parser().parse(source[end:])
    for parent, token in pairwise(tokens):
        if token.type != "inline" or not token.map:
            continue
        for begin, text, block_end in _texts(source, token, places, ends):
            yield _Block(end, source[end:begin])
            raw = source[begin:block_end]
            yield _Block(begin, raw, text, _begins_line(parent), parent.type in _CELLS)
            end = block_end
    yield _Block(end, source[end:])


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.block.ruler.at("reference", _reference)
    return parser


def _reference(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    is_note = state.src.startswith("[^", state.bMarks[first] + state.tShift[first])
    return not is_note and reference(state, first, last, silent)


def _begins_line(parent: Token) -> bool:
    is_underlined = parent.type == "heading_open" and parent.markup in ("=", "-")
    return is_underlined or parent.type == "paragraph_open"


def _texts(
    source: str, token: Token, places: list[int], ends: list[int]
) -> list[tuple[int, str, int]]:
    """Finds the texts of a block in the document.

    The lines are one text, except lines with marked breaks and lines of footnotes.

    Returns:
        Where each begins, the text, and where it ends; nothing if the block is not there.
    """
    assert token.map
    number, last = token.map
    is_broken = any(child.type == "hardbreak" for child in token.children or [])
    texts: list[list[tuple[int, str, int]]] = []
    for content in map(str.strip, token.content.split("\n")):
        # Marks of lists and quotes, and blank lines, are not in the content.
        while number < last and not (line := _line(source, content, places[number], ends[number])):
            number += 1
        if number >= last:
            return []
        place = source.find(line, places[number])
        places[number] = place + len(line)
        if is_broken or not texts or re.match(_NOTE, line):
            texts.append([])
        texts[-1].append((place, line, place + len(line)))
    joined = [(part[0][0], " ".join(line for _, line, _ in part), part[-1][2]) for part in texts]
    return [text for text in joined if text[1].strip()]


def _line(source: str, content: str, begin: int, end: int) -> str:
    forms = (content, content.replace("|", r"\|"))
    return next((form for form in forms if source.find(form, begin, end) >= 0), "")


def _passages(block: _Block) -> Iterator[Passage]:
    pieces = list(_inline(block.text))
    texts = (piece.raw for piece in pieces if piece.kind is Kind.TEXT)
    parts = passages(pieces, _syntax(texts, is_cell=block.is_cell))
    return _at_start(parts) if block.begins_line else parts


def _at_start(parts: Iterator[Passage]) -> Iterator[Passage]:
    """Yields passages, of which the first one is written so that its block stays what it is."""
    first = next(parts)
    if not first.before.strip() and first.has_words:
        write, divide = first.written, first.split_passages
        first = replace(
            first,
            written=lambda translation: _at_line_start(write(translation)),
            split_passages=divide and (lambda: _at_start(divide())),
        )
    yield first
    yield from parts


def _inline(text: str) -> Iterator[Piece]:
    end = 0
    opened: list[str] = []
    for markup in _MARKUP.finditer(text):
        if markup["escape"]:
            continue
        yield Piece(Kind.TEXT, text[end : markup.start()])
        yield Piece(_kind(markup, opened), markup[0], markup["emphasis"] or "[")
        end = markup.end()
    yield Piece(Kind.TEXT, text[end:])


def _kind(markup: re.Match[str], opened: list[str]) -> Kind:
    if markup["image"]:
        return Kind.EMPTY
    if markup["link"] or markup["target"]:
        return Kind.OPENING if markup["link"] else Kind.CLOSING
    if mark := markup["emphasis"]:
        text = markup.string
        before, after = text[: markup.start()][-1:], text[markup.end() :][:1]
        if mark in opened and before.strip():
            opened.remove(mark)
            return Kind.CLOSING
        if after.strip():
            opened.append(mark)
            return Kind.OPENING
    return Kind.BREAK


def _syntax(texts: Iterable[str], *, is_cell: bool) -> Syntax:
    """Returns how the text of a block is read and written.

    Args:
        texts: What the document has; what extensions need is escaped where it is escaped there.
        is_cell: Whether the block is the cell of a table.
    """
    escaped = {mark for text in texts for mark in _ESCAPED.findall(text)}
    kept = [mark for mark in _OF_EXTENSIONS if mark in escaped or (is_cell and mark == "|")]
    marks = re.compile("|".join([_MARK, *map(re.escape, kept)]))
    return Syntax(
        read=unescapeAll,
        write=lambda text: marks.sub(r"\\\g<0>", text),
    )


def _at_line_start(text: str) -> str:
    start = _START.match(text)
    return text if start is None else f"{start[0]}\\{text[start.end() :]}"
