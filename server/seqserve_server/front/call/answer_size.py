"""Bounds the size of an answer before it exists, from what its request asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.text.tokenizer import Tokenizer

# Tag and length of a string or of a packed field, a token id, a float: on the wire at most.
_STRING, _PACKED, _ID, _FLOAT = 4, 16, 5, 4
# Names, times, counts.
_ANSWER_BYTES, _HYPOTHESIS_BYTES = 512, 128
# What gRPC and asyncio hold for a call, and for each of its sources.
_CALL_BYTES, _SOURCE_BYTES = 16 << 10, 4 << 10


def held_bytes(size: int, sources: int = 1) -> int:
    """Computes what a call holds for an answer of a size: its message, and gRPC's copy of it."""
    return 2 * size + _CALL_BYTES + sources * _SOURCE_BYTES


@dataclass(frozen=True, slots=True)
class AnswerSize:
    """Most bytes of an answer on the wire, by the field of the request that causes them."""

    parts: dict[str, int]
    sources: int = 1
    """How many such answers a call returns."""
    unit: str = "sources"
    """What each of them answers."""

    @classmethod
    def generated(
        cls,
        options: DecodingOptions,
        *,
        source_tokens: int,
        token_bytes: int,
        term_bytes: Iterable[int] = (),
        sources: int = 1,
        text_bytes: int = 0,
        kept_bytes: Iterable[int] = (),
    ) -> AnswerSize:
        """Bounds the answer to a request to generate.

        Args:
            options: Its options.
            source_tokens: Of the source, or of the longest one that the model reads.
            token_bytes: Of the longest token, in UTF-8.
            term_bytes: Size of each term.
            sources: How many the request has, or how many segments.
            text_bytes: Of the texts that are divided into segments. Their answers are returned
                twice, by themselves and joined with what is left of the text.
            kept_bytes: Size of each text of a source that is kept. It is in the text and by itself.
        """
        # The end token has a score too.
        tokens = options.max_decoding_length + 1
        string = token_bytes + _STRING
        # Where bytes are no text, their tokens have two bytes each, and their text has three.
        text = 3 * token_bytes // 2 + 3
        times = 2 if text_bytes else 1
        spelled = tokens * (times * text + string + _ID) + _HYPOTHESIS_BYTES
        parts = {
            "options.max_decoding_length": spelled,
            "options.return_token_scores": options.return_token_scores * tokens * _FLOAT,
            "options.return_top_tokens": tokens
            * (options.return_top_tokens * (string + _ID + _FLOAT) + _PACKED)
            * bool(options.return_top_tokens),
            "options.return_attention": tokens
            # An alignment has four places: where a token begins and ends, and its source token.
            * (source_tokens * _FLOAT + _PACKED + 4 * _ID)
            * options.return_attention,
            "options.terms": times * sum(size + _STRING for size in term_bytes),
            "options.keep": times * sum(2 * size + _STRING + 6 * _ID for size in kept_bytes),
        }
        count = _hypotheses(options)
        parts = {name: count * size for name, size in parts.items()}
        # The first one needs no more than an ordinary answer.
        others = "patience" if count > options.beam_size else "num_hypotheses"
        parts["options.max_decoding_length"] = spelled
        parts[f"options.{others}"] = (count - 1) * spelled
        parts["source"] = _ANSWER_BYTES + source_tokens * string * options.return_attention
        parts["source"] += math.ceil(text_bytes / max(1, sources))
        return cls(parts, sources, "segments" if text_bytes else "sources")

    @classmethod
    def scored(cls, source_tokens: int, target_tokens: int, token_bytes: int) -> AnswerSize:
        """Bounds the answer to a request to score a target."""
        string = token_bytes + _STRING
        tokens = source_tokens + target_tokens
        return cls({"target": _ANSWER_BYTES + tokens * (string + _ID + _FLOAT)})

    @classmethod
    def tokenized(cls, tokens: int, token_bytes: int) -> AnswerSize:
        """Bounds the answer to a request to divide a text into tokens, or to join them."""
        # Of each its id, its beginning and its end; where bytes are no text, three bytes for two.
        return cls({"text": _ANSWER_BYTES + tokens * (3 * token_bytes // 2 + _STRING + 3 * _ID)})

    @classmethod
    def attended(
        cls, manifest: Manifest, tokenizer: Tokenizer, source_tokens: int, target_tokens: int
    ) -> AnswerSize:
        """Bounds the weights of all layers and heads for a target."""
        shape = manifest.architecture
        source, target = source_tokens, target_tokens
        read = shape.encoder_layers * (shape.encoder_heads or shape.heads) * source * source
        # A recurrent decoder has no weights of its own.
        own = 0 if shape.cell_width else target
        written = shape.decoder_layers * shape.heads * target * (own + source)
        names = (source + target) * (tokenizer.token_bytes + _STRING)
        return cls({"target": _ANSWER_BYTES + (read + written) * _FLOAT + names})

    @property
    def each(self) -> int:
        """Of one source, on the wire."""
        return sum(self.parts.values())

    @property
    def held_bytes(self) -> int:
        """What the call may hold."""
        return held_bytes(self.sources * self.each, self.sources)

    def checked(self, max_bytes: int) -> int:
        """Returns what the call may hold, for which there may be room.

        Raises:
            InvalidRequest: It may need more than ``max_bytes``, even if it is alone.
        """
        needed = self.held_bytes
        if needed <= max_bytes:
            return needed
        field = max(self.parts, key=self.parts.__getitem__)
        of = f"the answers to {self.sources:,} {self.unit}" if self.sources > 1 else "the answer"
        fewer = f"fewer {self.unit} in a call, " if self.sources > 1 else ""
        raise InvalidRequest(
            field,
            f"makes {of} need up to {_megabytes(needed)} MB; this server has"
            f" {_megabytes(max_bytes)} MB for one caller: ask for less, {fewer}or a lower"
            " max_decoding_length",
        )


def _hypotheses(options: DecodingOptions) -> int:
    """Counts the hypotheses that the engine may send; coverage ranks all that have finished."""
    if not options.coverage_penalty:
        return options.num_hypotheses
    return math.ceil(options.beam_size * (options.patience + 1))


def _megabytes(size: int) -> str:
    return f"{math.ceil(size / 1e6):,}"
