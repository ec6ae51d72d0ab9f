"""Joins the texts of segments with the white space of their source."""

from __future__ import annotations

import re

from seqserve_server.front.rpc.segmentation.splitting import Span

# Scripts that put no space between words or sentences: Thai, Lao, Burmese, Khmer, Chinese and
# Japanese with their punctuation, full-width forms.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)


class Joint:
    """The text of all answers, as it grows.

    White space comes back as it was. Where a script without spaces has none between two segments,
    and neither of their answers is in such a script, one space is added.
    """

    def __init__(self, source: str) -> None:
        """Starts empty."""
        self._source = source
        self._read = 0
        self._last = ""
        self._length = 0

    def add(self, span: Span, text: str) -> str:
        """Adds the answer to the next segment; returns it with the white space before it."""
        gap = self._source[self._read : span.begin]
        if not gap and self._last and text and self._lacks_space(span.begin, text):
            gap = " "
        self._read = span.end
        self._last = text[-1:] or self._last
        self._length += len(gap) + len(text)
        return gap + text

    @property
    def length(self) -> int:
        """Code points so far."""
        return self._length

    def rest(self) -> str:
        """Returns the white space behind the last segment."""
        return self._source[self._read :]

    def _lacks_space(self, begin: int, text: str) -> bool:
        around = self._source[begin - 1 : begin + 1]
        return bool(_UNSPACED.search(around)) and not _UNSPACED.search(self._last + text[0])
