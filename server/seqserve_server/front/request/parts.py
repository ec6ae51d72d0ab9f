"""Reads sources and targets: checks them, divides sources into parts, tokenizes each part once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from seqserve.documents.passage import has_words
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import InvalidRequest, ServiceError
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.call.text_turns import Steps
from seqserve_server.front.glossaries.glossary import Glossary
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.front.request.capitals import in_capitals, lowered
from seqserve_server.front.request.kept_spans import without
from seqserve_server.front.request.languages import Affixes
from seqserve_server.front.request.options import RequestOptions
from seqserve_server.front.request.splitting import Segmentation, Span, split, wrap
from seqserve_server.front.request.terms import Terms

MAX_SOURCES = 1024
"""Maximum number of sources in one call."""
MAX_CHARACTERS = 1_000_000
"""Maximum length of a text that is divided, in code points."""
MAX_SEGMENTS = 4096
"""Maximum number of segments of a text, and of all texts of a batch together."""
MAX_CHARACTERS_PER_TOKEN = 32
"""A token rarely has more; a text that does is refused before it is tokenized."""
_TOO_LONG = "split it into sentences, or set options.segmentation"
_PART_BYTES, _TOKEN_BYTES = 200, 36


class Part(NamedTuple):
    """A part of a source, which the engine decodes by itself."""

    span: Span
    tokens: list[int]
    """What the model reads for it, with all that is added; empty for a part that stays as it is."""
    options: DecodingOptions
    """How to decode it: the options of the request, with the terms that this part contains."""
    terms: Sequence[generation_pb2.Term] = ()
    """The terms of these options as they were sent, then terms of a glossary that cannot apply."""
    is_wrapped: bool = False
    """Whether it is only a part of a line or sentence, which is too long."""
    kept: Sequence[Span] = ()
    """What of its text comes back as it is."""
    draft: tuple[int, ...] = ()
    """Token ids that its target may have."""
    lowered: str = ""
    """Its text in small letters, which the model reads, if it is typed in capitals."""

    @property
    def kept_bytes(self) -> list[int]:
        """Most bytes of each text that is kept, in UTF-8."""
        return [4 * (end - begin) for begin, end in self.kept]


@dataclass(frozen=True, slots=True)
class Source:
    """A source and its parts, in order; between them is nothing but white space."""

    text: str
    parts: list[Part]
    num_tokens: int
    """Tokens of all parts."""
    is_divided: bool
    """Whether the answer has segments: where division was asked for, even if there is one part."""

    @property
    def only(self) -> Part | None:
        """The part of a source that has one, which the model reads; None otherwise."""
        return self.parts[0] if len(self.parts) == 1 and self.parts[0].tokens else None

    def text_of(self, part: Part) -> str:
        """Returns the text of a part."""
        return self.text[slice(*part.span)]

    @property
    def held_bytes(self) -> int:
        """Memory of the parts, without the text."""
        return _PART_BYTES * len(self.parts) + _TOKEN_BYTES * self.num_tokens


class SourceReader:
    """Turns texts into sources for a model."""

    def __init__(
        self,
        model: LoadedModel,
        options: RequestOptions,
        terms: Sequence[generation_pb2.Term] = (),
        glossary: Glossary | None = None,
    ) -> None:
        """Takes what all sources of a request share; ``terms`` are as they were sent."""
        self._tokenizer, self._manifest = model.tokenizer, model.manifest
        self._affixes, self._segmentation = options.affixes, options.segmentation
        self._kept, self._drafts = options.kept, options.drafts
        self._lowers_capitals = options.lowers_capitals
        self._terms = Terms(terms, glossary, options.decoding, model)
        self.max_tokens = model.manifest.limits.max_source_length
        """Most tokens that the model reads."""

    def read(self, text: str) -> Steps[Source]:
        """Reads one source.

        Raises:
            InvalidRequest: It is empty or too long, has too many segments, or terms that do not
                fit.
        """
        if not text.strip():
            raise InvalidRequest("source", "is empty")
        if self._segmentation is None:
            return self._undivided(text)
        return (yield from self._divided(text, self._segmentation))

    def read_all(self, texts: Sequence[str]) -> Steps[list[Source | ServiceError]]:
        """Reads the sources of a batch; an error stands for its source.

        Raises:
            InvalidRequest: They have too many segments together.
        """
        sources: list[Source | ServiceError] = []
        num_segments = 0
        for text in texts:
            try:
                source = yield from self.read(text)
            except ServiceError as error:
                sources.append(error)
                continue
            yield
            sources.append(source)
            num_segments += len(source.parts) if source.is_divided else 0
            if num_segments > MAX_SEGMENTS:
                reason = f"have more than {MAX_SEGMENTS:,} segments together; send fewer in a call"
                raise InvalidRequest("sources", reason)
        return sources

    def _undivided(self, text: str) -> Source:
        _check_length("source", text, self.max_tokens, self._manifest, _TOO_LONG)
        part = self._part(Span(0, len(text)), text, self.tokens(text))
        self._check_tokens(part.tokens)
        return Source(text, [part], len(part.tokens), is_divided=False)

    def _divided(self, text: str, segmentation: Segmentation) -> Steps[Source]:
        if len(text) > MAX_CHARACTERS:
            raise _too_much(f"{len(text):,} characters", f"{MAX_CHARACTERS:,}")
        parts: list[Part] = []
        for spans in split(text, segmentation):
            yield
            for span in spans:
                for part in self._parts(text[slice(*span)], span.begin):
                    if len(parts) == MAX_SEGMENTS:
                        raise _too_much(f"more than {MAX_SEGMENTS:,} segments", f"{MAX_SEGMENTS:,}")
                    parts.append(part)
                    yield
        if len(parts) > 1 and self._drafts.token_ids:
            # It is the draft of one text.
            parts = [part._replace(draft=()) for part in parts]
        num_tokens = sum(len(part.tokens) for part in parts)
        if segmentation.is_default and len(parts) == 1 and parts[0].tokens:
            # Nobody asked for segments, and there is nothing to divide.
            if parts[0].span == (0, len(text)):
                return Source(text, parts, num_tokens, is_divided=False)
            # With more white space than the model reads it stays a segment.
            with suppress(InvalidRequest):
                return self._undivided(text)
        return Source(text, parts, num_tokens, is_divided=True)

    def _parts(self, text: str, begin: int) -> Iterator[Part]:
        """Yields a line or sentence as it is, or in parts if it is too long."""
        if len(text) <= self.max_tokens * MAX_CHARACTERS_PER_TOKEN:
            tokens = self.tokens(text)
            if len(tokens) <= self.max_tokens:
                yield self._part(Span(begin, begin + len(text)), text, tokens)
                return
        for (first, end), tokens in wrap(text, self):
            span = Span(begin + first, begin + end)
            yield self._part(span, text[first:end], tokens, is_wrapped=True)

    def _part(self, span: Span, text: str, tokens: list[int], *, is_wrapped: bool = False) -> Part:
        kept = self._kept.spans(text)
        rest = without(text, kept)
        options, terms = self._terms.of(rest)
        if not self._is_read(rest, tokens):
            tokens = []
        read = self._read(text, kept)
        draft = self._drafts.draft_of(read) if tokens and options.follows_drafts else ()
        in_small = read if read != text else ""
        return Part(span, tokens, options, terms, is_wrapped, kept, draft, in_small)

    def tokens(self, text: str) -> list[int]:
        """Tokenizes a text, and adds what the model reads beside it."""
        read = self._read(text)
        return self._affixes.around(self._tokenizer.encode(self._affixes.text + read))

    def ends(self, text: str) -> list[int]:
        """Returns where each token of a text ends, in code points."""
        # Tokens that are added take their places before the first one.
        offsets = self._tokenizer.pieces(self._read(text)).offsets
        return [0] * self._num_added + [end for _, end in offsets]

    def _read(self, text: str, kept: Sequence[Span] | None = None) -> str:
        """Returns a text as the model reads it: one in capitals in small letters."""
        if not self._lowers_capitals:
            return text
        kept = self._kept.spans(text) if kept is None else kept
        return lowered(text, kept) if in_capitals(text, kept) else text

    def _is_read(self, text: str, tokens: list[int]) -> bool:
        """Tells whether a segment has a letter, and the model reads any character of the text."""
        if self._segmentation is not None and not has_words(text):
            return False
        if len(tokens) > self._num_added:
            return True
        # The text in front of it may have taken its tokens.
        return bool(self._affixes.text and self._tokenizer.pieces(text).ids)

    @cached_property
    def _num_added(self) -> int:
        """Tokens that the model reads for an empty text."""
        if self._affixes.text:
            return len(self.tokens(""))
        return len(self._affixes.around([])) + self._tokenizer.num_added

    def _check_tokens(self, tokens: list[int]) -> None:
        """Checks that an undivided source is not too long, and that the model reads some of it."""
        num_affixes = len(self._affixes.around([]))
        if len(tokens) > self.max_tokens:
            end = "the end token"
            added = end if not num_affixes else f"{end} and {num_affixes} of the model"
            raise InvalidRequest(
                "source",
                f"has {len(tokens)} tokens with {added}; {self._manifest.label} reads at most"
                f" {self.max_tokens}: {_TOO_LONG}",
            )
        if not tokens:
            raise InvalidRequest("source", "has no character that the model reads")


def target_tokens(model: LoadedModel, text: str, affixes: Affixes) -> list[int]:
    """Tokenizes a target, the end token last, and adds what the model wants first.

    Raises:
        InvalidRequest: It is too long; it may be empty.
    """
    limit = model.manifest.limits.max_target_length
    _check_length("target", text, limit, model.manifest)
    tokens = [*affixes.target, *model.tokenizer.encode_target(text)]
    # The end token does not count.
    if len(tokens) - 1 > limit:
        reason = f"has {len(tokens) - 1} tokens; {model.manifest.label} writes at most {limit}"
        raise InvalidRequest("target", reason)
    return tokens


def check_count(sources: int) -> None:
    """Checks the number of sources in a batch."""
    if not 1 <= sources <= MAX_SOURCES:
        raise InvalidRequest("sources", f"are {sources}; a call takes 1 to {MAX_SOURCES}")


def _check_length(field: str, text: str, limit: int, manifest: Manifest, advice: str = "") -> None:
    if len(text) > limit * MAX_CHARACTERS_PER_TOKEN:
        reason = f"has {len(text):,} characters; {manifest.label} takes at most {limit} tokens"
        raise InvalidRequest(field, f"{reason}: {advice}" if advice else reason)


def _too_much(what: str, limit: str) -> InvalidRequest:
    return InvalidRequest("source", f"has {what}; a text takes at most {limit}: send it in parts")
