"""Divides a text at line breaks and after sentences; only white space is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import sentencex

from seqserve_server.front.rpc.options.segmentation import Segmentation
from seqserve_server.front.segmentation import Mode

# The line breaks of str.splitlines: a Unicode text may have others than "\n".
_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


class Span(NamedTuple):
    """A part of a text, in Unicode code points; it neither begins nor ends with white space."""

    begin: int
    end: int


def split(text: str, segmentation: Segmentation) -> Iterator[Span]:
    """Yields the lines or the sentences of a text that are not blank, in order.

    A sentence ends at the end of its line, too. Sentences end by the rules of Wikimedia's
    sentencex, https://github.com/wikimedia/sentencex.
    """
    for line in _LINE.finditer(text):
        begin = line.start()
        parts = [line[0]]
        if segmentation.mode is Mode.SENTENCES:
            parts = sentencex.segment(segmentation.language, line[0])
        for part in parts:
            if stripped := part.strip():
                left = begin + len(part) - len(part.lstrip())
                yield Span(left, left + len(stripped))
            begin += len(part)
