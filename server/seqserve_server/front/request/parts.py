"""A text in segments, each of which the model can read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.manifest import Manifest
from seqserve_server.front.call.server_call import current
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.request.languages import Affixes
from seqserve_server.front.request.splitting import Segmentation, Span, split, wrap

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


MAX_SOURCES = 1024
"""Maximum number of sources in one call."""
MAX_CHARACTERS_PER_TOKEN = 32
"""A token rarely has more; a text that does is refused before it is tokenized."""
_TOO_LONG = "split it into sentences, or set options.segmentation"


def check_count(sources: int) -> None:
    """Checks the number of sources in a batch."""
    if not 1 <= sources <= MAX_SOURCES:
        raise InvalidRequest("sources", f"are {sources}; a call takes 1 to {MAX_SOURCES}")


def check_source(source: str, manifest: Manifest) -> None:
    """Checks before it is tokenized that a source is not empty or far too long."""
    check_not_empty(source)
    _check_length("source", source, manifest.limits.max_source_length, manifest, _TOO_LONG)


def check_not_empty(source: str) -> None:
    """Checks that a source has more than white space."""
    if not source.strip():
        raise InvalidRequest("source", "is empty")


def check_target(target: str, manifest: Manifest) -> None:
    """Checks before it is tokenized that a target, which may be empty, is not far too long."""
    _check_length("target", target, manifest.limits.max_target_length, manifest)


def _check_length(field: str, text: str, limit: int, manifest: Manifest, advice: str = "") -> None:
    if len(text) > limit * MAX_CHARACTERS_PER_TOKEN:
        told = f"has {len(text):,} characters; {manifest.label} takes at most {limit} tokens"
        raise InvalidRequest(field, f"{told}: {advice}" if advice else told)


def check_source_tokens(tokens: list[int], num_added: int, manifest: Manifest) -> None:
    """Checks that a source has not too many tokens, and more than the end token.

    Args:
        tokens: Those of the text.
        num_added: How many the model reads beside them.
        manifest: Has the limit.
    """
    limit, count = manifest.limits.max_source_length, len(tokens) + num_added
    if count > limit:
        added = "the end token" if not num_added else f"the end token and {num_added} of the model"
        raise InvalidRequest(
            "source",
            f"has {count} tokens with {added}; {manifest.label} reads at most {limit}: {_TOO_LONG}",
        )
    if len(tokens) < 2:
        raise InvalidRequest("source", "has no character that the model reads")


def check_target_tokens(tokens: list[int], manifest: Manifest) -> None:
    """Checks that a target has not too many tokens; the end token does not count."""
    limit = manifest.limits.max_target_length
    if len(tokens) - 1 > limit:
        raise InvalidRequest(
            "target", f"has {len(tokens) - 1} tokens; {manifest.label} writes at most {limit}"
        )


async def source_tokens(model: ServedModel, text: str, affixes: Affixes) -> list[int]:
    """Tokenizes a source and adds what the model reads beside it.

    Raises:
        InvalidRequest: It is empty or too long.
    """
    check_source(text, model.manifest)
    own = await _tokens(model.tokenizer.encode, affixes.text + text)
    tokens = affixes.around(own)
    check_source_tokens(own, len(tokens) - len(own), model.manifest)
    current.get().facts["source_tokens"] = len(tokens)
    return tokens


async def target_tokens(model: ServedModel, text: str, affixes: Affixes) -> list[int]:
    """Tokenizes a target, the end token last, and adds what the model wants first.

    Raises:
        InvalidRequest: It is too long.
    """
    check_target(text, model.manifest)
    tokens = [*affixes.target, *await _tokens(model.tokenizer.encode_target, text)]
    check_target_tokens(tokens, model.manifest)
    return tokens


async def _tokens(encode: Callable[[str], list[int]], text: str) -> list[int]:
    if len(text) <= _INLINE_CHARACTERS:
        return encode(text)
    return await asyncio.to_thread(encode, text)
