"""Bounds the size of an answer before it exists, from what its request asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.text.tokenizer import Tokenizer

# Tag and length of a string or of a packed field, a token id, a float: on the wire at most.
STRING_BYTES, PACKED_BYTES, ID_BYTES, FLOAT_BYTES = 4, 16, 5, 4
# Names, times, counts.
ANSWER_BYTES, HYPOTHESIS_BYTES = 512, 128
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
    def scored(cls, source_tokens: int, target_tokens: int, token_bytes: int) -> AnswerSize:
        """Bounds the answer to a request to score a target."""
        string = token_bytes + STRING_BYTES
        tokens = source_tokens + target_tokens
        return cls({"target": ANSWER_BYTES + tokens * (string + ID_BYTES + FLOAT_BYTES)})

    @classmethod
    def tokenized(cls, tokens: int, token_bytes: int) -> AnswerSize:
        """Bounds the answer to a request to divide a text into tokens, or to join them."""
        # Of each its id, its beginning and its end; where bytes are no text, three bytes for two.
        return cls(
            {"text": ANSWER_BYTES + tokens * (3 * token_bytes // 2 + STRING_BYTES + 3 * ID_BYTES)}
        )

    @classmethod
    def attended(
        cls, manifest: Manifest, tokenizer: Tokenizer, source_tokens: int, target_tokens: int
    ) -> AnswerSize:
        """Bounds the weights of all layers and heads for a target."""
        shape = manifest.architecture
        source, target = source_tokens, target_tokens
        read = shape.encoder_layers * (shape.encoder_heads or shape.heads) * source * source
        # A recurrent decoder has no self-attention.
        own = 0 if shape.cell_width else target
        written = shape.decoder_layers * shape.heads * target * (own + source)
        names = (source + target) * (tokenizer.token_bytes + STRING_BYTES)
        return cls({"target": ANSWER_BYTES + (read + written) * FLOAT_BYTES + names})

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


def _megabytes(size: int) -> str:
    return f"{math.ceil(size / 1e6):,}"
