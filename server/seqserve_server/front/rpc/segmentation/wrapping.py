"""Wraps a sentence that has more tokens than the model reads."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Protocol

from seqserve_server.front.rpc.segmentation.splitting import Span

# A token rarely has more characters; tokenizing all of a long rest for every part would take long.
_CHARACTERS_PER_TOKEN = 8
# Ends of clauses: punctuation before white space, or of scripts that write none.
_CLAUSE = re.compile(r"[,;:،؛)\]»”–—-](?=\s)|[、，；：）」』。！？]")
_WORD = re.compile(r"\S(?=\s)")
_JOINERS = "\N{ZERO WIDTH JOINER}\N{VARIATION SELECTOR-16}"


class Reader(Protocol):
    """Tokenizes texts as the model reads them."""

    @property
    def max_tokens(self) -> int:
        """Most tokens that the model reads."""

    def count(self, text: str) -> int:
        """Counts the tokens of a source, with all that is added to it."""

    def ends(self, text: str) -> list[int]:
        """Returns where each token of a text ends, in code points."""


def wrap(text: str, reader: Reader) -> Iterator[Span]:
    """Yields parts of a text that have at most the maximum of tokens.

    A part ends after a clause if one ends in its second half, or else at white space, or else at
    the end of a token. A character that has too many tokens by itself is a part too.
    """
    most, begin = reader.max_tokens, 0
    while begin < len(text):
        window = text[begin : begin + most * _CHARACTERS_PER_TOKEN]
        end = len(window)
        if begin + end < len(text) or reader.count(window) > most:
            ends = reader.ends(window)
            end = _border(window, ends[most - 1] if len(ends) > most else end)
            # A part may have other tokens than the same text within the window has.
            while end > 1 and reader.count(window[:end].strip()) > most:
                end = _border(window, end - 1)
        part = window[:end]
        if stripped := part.strip():
            left = begin + len(part) - len(part.lstrip())
            yield Span(left, left + len(stripped))
        begin += end


def _border(text: str, limit: int) -> int:
    """Finds the best place to end a part of 1 to ``limit`` characters."""
    for pattern, begin in ((_CLAUSE, limit // 2), (_WORD, 0)):
        found = [match.end() for match in pattern.finditer(text, begin, limit + 1)]
        found = [end for end in found if end <= limit]
        if found:
            return found[-1]
    # Not between a character and what belongs to it.
    end = limit
    while 1 < end < len(text) and (unicodedata.combining(text[end]) or text[end] in _JOINERS):
        end -= 1
    return max(end, 1)
