"""Divides a text at line breaks and after sentences, and joins what its parts become: only white
space is left out, and comes back."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple

from seqserve_server.contract.options import SegmentationMode
from seqserve_server.text.sentence_ends import segment

_PIECE_CHARACTERS, _SETTLED_CHARACTERS = 2048, 1536
# The line breaks of str.splitlines: a Unicode text may have others than "\n".
_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


class Span(NamedTuple):
    """A part of a text, in Unicode code points; it neither begins nor ends with white space."""

    begin: int
    end: int


DEFAULT_LANGUAGE = "en"
"""Its rules apply to languages that the library of sentences does not know."""


class Segmentation(NamedTuple):
    """How a source is divided."""

    mode: SegmentationMode
    language: str = DEFAULT_LANGUAGE
    """Code of the language, of ISO 639, by whose rules sentences end."""
    is_default: bool = False
    """Whether the model recommends it and the request says nothing."""


def split(text: str, segmentation: Segmentation) -> Iterator[list[Span]]:
    """Yields a text's lines or sentences that are not blank, in lists of bounded work."""
    for line in _LINE.finditer(text):
        if segmentation.mode is SegmentationMode.SENTENCES:
            yield from _sentences(line[0], line.start(), segmentation.language)
        elif span := _stripped(line[0], line.start()):
            yield [span]
        else:
            yield []


def _sentences(line: str, begin: int, language: str) -> Iterator[list[Span]]:
    """Yields the sentences of a line.

    The time of sentencex may grow with the square of what it gets, so a long line is divided piece
    by piece. Sentences near the end of a piece are divided again with what follows them, because a
    quotation may go on there.
    """
    first = 0
    while first < len(line):
        piece = line[first : first + _PIECE_CHARACTERS]
        sentences = [each for item in _items(piece) for each in segment(language, item)]
        if first + len(piece) < len(line):
            # What follows the piece may change the last ones.
            ends = list(accumulate(map(len, sentences[:-1])))
            settled = [end for end in ends if end <= _SETTLED_CHARACTERS]
            sentences = sentences[: len(settled or ends)]
            sentences = sentences or [piece[: _border(piece, len(piece))]]
        spans = []
        for sentence in sentences:
            if span := _stripped(sentence, begin + first):
                spans.append(span)
            first += len(sentence)
        yield spans


# Tabs, and signs that few models have learnt, are between items, or before one. Not within code.
_SIGN = re.compile(
    r"\{[^{}]{0,200}\}|`[^`]{0,200}`"
    r"|(?P<sign>(?<!\S)[|¦•·∙⋅›❯▸▶→←⇒➔➜]+(?!\S)|\A\s*[-–—*#>©]+(?=\s)|\t+)"
)


def _items(line: str) -> Iterator[str]:
    """Yields the items of a line and the signs between them: ``Home | Shop``, ``• a cup``."""
    begin = 0
    for sign in _SIGN.finditer(line):
        if sign["sign"]:
            yield from filter(None, (line[begin : sign.start()], sign[0]))
            begin = sign.end()
    yield line[begin:]


def _stripped(text: str, begin: int) -> Span | None:
    if not (stripped := text.strip()):
        return None
    left = begin + len(text) - len(text.lstrip())
    return Span(left, left + len(stripped))


# A token rarely has more characters; tokenizing all of a long rest for every part would take long.
_CHARACTERS_PER_TOKEN = 8
# Ends of clauses: punctuation before white space, or of scripts that write none.
_CLAUSE = re.compile(r"[,;:،؛)\]»”–—-](?=\s)|[、，；：）」』。！？]")
_WORD = re.compile(r"\S(?=\s)")
_JOINERS = "\N{ZERO WIDTH JOINER}\N{VARIATION SELECTOR-16}"


def wrap(
    text: str,
    max_tokens: int,
    tokens_of: Callable[[str], list[int]],
    ends_of: Callable[[str], list[int]],
) -> Iterator[tuple[Span, list[int]]]:
    """Yields parts of a text that have at most the maximum of tokens, with their tokens.

    A part ends after a clause if one ends in its second half, or else at white space, or else at
    the end of a token. ``ends_of`` returns where each token of a text ends.
    """
    begin = 0
    while begin < len(text):
        window = text[begin : begin + max_tokens * _CHARACTERS_PER_TOKEN]
        end = len(window)
        tokens = tokens_of(window.strip()) if begin + end == len(text) else None
        if tokens is None or len(tokens) > max_tokens:
            ends = ends_of(window)
            end = _border(window, ends[max_tokens - 1] if len(ends) > max_tokens else end)
            tokens = tokens_of(window[:end].strip())
            # A part may have other tokens than the same text within the window has.
            while end > 1 and len(tokens) > max_tokens:
                end = _border(window, end - 1)
                tokens = tokens_of(window[:end].strip())
        if span := _stripped(window[:end], begin):
            yield span, tokens
        begin += end


def _border(text: str, limit: int) -> int:
    for pattern, begin in ((_CLAUSE, limit // 2), (_WORD, 0)):
        ends = [match.end() for match in pattern.finditer(text, begin, limit + 1)]
        if ends := [end for end in ends if end <= limit]:
            return ends[-1]
    # Not between a character and what belongs to it, unless that is more than half of the part.
    for end in range(limit, limit // 2, -1):
        if end == len(text) or not (unicodedata.combining(text[end]) or text[end] in _JOINERS):
            return end
    return max(limit, 1)


# Scripts that put no space between words or sentences: Thai, Lao, Burmese, Khmer, Chinese and
# Japanese with their punctuation, full-width forms.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)


class TextJoiner:
    """The text of all answers, as it grows, with the white space of the source.

    If two segments of a script without spaces touch, and neither answer is in such a script, the
    answers get a space between them.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._read = 0
        self._last = ""
        self.length = 0
        """Code points so far."""

    def add(self, span: Span, text: str) -> str:
        """Adds the answer to the next segment; returns it with the white space before it."""
        gap = self._source[self._read : span.begin]
        if not gap and self._last and text and self._lacks_space(span.begin, text):
            gap = " "
        self._read = span.end
        self._last = text[-1:] or self._last
        self.length += len(gap) + len(text)
        return gap + text

    def rest(self) -> str:
        """Returns the white space after the last segment."""
        return self._source[self._read :]

    def _lacks_space(self, begin: int, text: str) -> bool:
        around = self._source[begin - 1 : begin + 1]
        return bool(_UNSPACED.search(around)) and not _UNSPACED.search(self._last + text[0])
