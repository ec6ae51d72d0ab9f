"""A text in segments, each of which the model can read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.options.languages import Affixes
from seqserve_server.front.rpc.options.segmentation import Segmentation
from seqserve_server.front.rpc.options.validation import MAX_CHARACTERS_PER_TOKEN, check_not_empty
from seqserve_server.front.rpc.segmentation.splitting import Span, split
from seqserve_server.front.rpc.segmentation.wrapping import wrap

MAX_CHARACTERS = 1_000_000
"""Maximum length of a text in code points."""
MAX_SEGMENTS = 4096
"""Maximum number of its segments, and of those of all texts of a batch."""
_SEGMENT_BYTES = 200
# A longer text is divided in a thread, so that other calls need not wait for it.
_INLINE_CHARACTERS = 1024


class Segment(NamedTuple):
    """A part of a text."""

    span: Span
    is_wrapped: bool
    """Whether it is only a part of a line or sentence, which is too long."""
    is_read: bool
    """Whether the model reads any character of it."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its segments, in order; between them is nothing but white space."""

    text: str
    segments: list[Segment]

    @classmethod
    async def read(
        cls, text: str, segmentation: Segmentation, model: ServedModel, affixes: Affixes
    ) -> Document:
        """Divides the source of a request.

        Args:
            text: The source.
            segmentation: How to divide it.
            model: Reads the segments.
            affixes: What is added to each of them.

        Raises:
            InvalidRequest: It is empty, too long, or has too many segments.
        """
        check_not_empty(text)
        if len(text) > MAX_CHARACTERS:
            raise _too_much(f"{len(text):,} characters", f"{MAX_CHARACTERS:,}")
        reader = _Reader(model, affixes)
        if len(text) <= _INLINE_CHARACTERS:
            return cls(text, list(_segments(text, segmentation, reader)))
        divided = asyncio.to_thread(list, _segments(text, segmentation, reader))
        return cls(text, await divided)

    @property
    def only(self) -> Segment | None:
        """The segment of a text that has one, which the model reads; None otherwise."""
        return self.segments[0] if len(self.segments) == 1 and self.segments[0].is_read else None

    @property
    def held_bytes(self) -> int:
        """Memory of the segments, without the text."""
        return _SEGMENT_BYTES * len(self.segments)

    def source_of(self, segment: Segment) -> str:
        """Returns the text of a segment."""
        return self.text[slice(*segment.span)]


class _Reader:
    """Tokenizes sources for one request."""

    def __init__(self, model: ServedModel, affixes: Affixes) -> None:
        self._tokenizer, self._affixes = model.tokenizer, affixes
        self.max_tokens = model.manifest.limits.max_source_length
        self._added = self.count("")

    def count(self, text: str) -> int:
        return len(self._affixes.around(self._tokenizer.encode(self._affixes.text + text)))

    def ends(self, text: str) -> list[int]:
        # Tokens that are added take their places before the first one.
        return [0] * self._added + [end for _, end in self._tokenizer.pieces(text).offsets]

    def reads(self, text: str) -> bool:
        return self.count(text) > self._added or bool(self._tokenizer.pieces(text).ids)


def _segments(text: str, segmentation: Segmentation, reader: _Reader) -> Iterator[Segment]:
    found = 0
    for span in split(text, segmentation):
        for segment in _readable(text[slice(*span)], span.begin, reader):
            found += 1
            if found > MAX_SEGMENTS:
                raise _too_much(f"more than {MAX_SEGMENTS:,} segments", f"{MAX_SEGMENTS:,}")
            yield segment


def _readable(text: str, begin: int, reader: _Reader) -> Iterator[Segment]:
    """Yields a line or sentence as it is, or in parts if it is too long."""
    is_short = len(text) <= reader.max_tokens * MAX_CHARACTERS_PER_TOKEN
    fits = is_short and reader.count(text) <= reader.max_tokens
    for part in [Span(0, len(text))] if fits else wrap(text, reader):
        span = Span(begin + part.begin, begin + part.end)
        yield Segment(span, is_wrapped=not fits, is_read=reader.reads(text[slice(*part)]))


def _too_much(what: str, limit: str) -> InvalidRequest:
    return InvalidRequest("source", f"has {what}; a text takes at most {limit}: send it in parts")
