"""Markdown: text of paragraphs, headings, lists and tables is a passage; code stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from seqserve.documents.inline import Kind, Piece, Syntax, passages
from seqserve.documents.passage import Lines, Passage

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_TARGET = r"\]\((?:[^()\\]|\\.|\([^()]*\))*\)|\]\[[^\]]*\]"
# Code, HTML and addresses; images; links around their texts; emphasis; what else is no text.
_MARKUP = re.compile(
    r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|<[^<>\s][^<>]*>"
    rf"|(?P<image>!\[[^\]]*(?:{_TARGET}|\]))|(?P<target>{_TARGET})|\[\^[^\]]*\]|\[[ xX]\](?=\s)"
    r"|(?P<link>\[)|\]|(?P<emphasis>\*+|(?<!\w)_+|_+(?!\w)|~~)|\\$"
)


class _Block(NamedTuple):
    begin: int
    """Where it begins in the document."""
    text: str
    is_text: bool


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
        if not block.is_text:
            before += block.text
            continue
        for passage in passages(list(_inline(block.text)), _SYNTAX):
            before += passage.before
            if passage.text:
                yield replace(passage, line=line, before=before)
                before = ""
    yield Passage(line=line, before=before)


def _blocks(source: str) -> Iterator[_Block]:
    """Divides a document into what is text and what is not."""
    front = _FRONT_MATTER.match(source)
    end = front.end() if front else 0
    yield _Block(0, source[:end], is_text=False)
    rows = [*_LINE.finditer(source[end:])]
    # Where each line begins, or in it the next block: a row of a table has several.
    places = [end + row.start() for row in rows]
    ends = [end + row.end() for row in rows]
    for token in MarkdownIt("commonmark").enable("table").parse(source[end:]):
        if token.type != "inline" or not token.map:
            continue
        for begin, text, block_end in _texts(source, token, places, ends):
            yield _Block(end, source[end:begin], is_text=False)
            yield _Block(begin, text, is_text=True)
            end = block_end
    yield _Block(end, source[end:], is_text=False)


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


def _inline(text: str) -> Iterator[Piece]:
    """Divides the text of a block into text and markup."""
    end = 0
    opened: list[str] = []
    for markup in _MARKUP.finditer(text):
        yield Piece(Kind.TEXT, text[end : markup.start()])
        yield Piece(_kind(markup, opened), markup[0], markup["emphasis"] or "[")
        end = markup.end()
    yield Piece(Kind.TEXT, text[end:])


def _kind(markup: re.Match[str], opened: list[str]) -> Kind:
    """Tells what markup is; ``opened`` are marks of emphasis that have no counterpart yet."""
    if markup["image"]:
        return Kind.EMPTY
    if markup["link"] or markup["target"]:
        return Kind.OPENING if markup["link"] else Kind.CLOSING
    if mark := markup["emphasis"]:
        text = markup.string
        before, behind = text[: markup.start()][-1:], text[markup.end() :][:1]
        if mark in opened and before.strip(" \\"):
            opened.remove(mark)
            return Kind.CLOSING
        if behind.strip() and before != "\\":
            opened.append(mark)
            return Kind.OPENING
    return Kind.BREAK


def _same(text: str) -> str:
    return text


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


_SYNTAX = Syntax(read=_same, write=_same, is_text=_has_letter)
