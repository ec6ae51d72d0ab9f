"""The events with which an engine answers a request, and the times of its stages.

Times are in seconds on the monotonic clock.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from seqserve_server.contract.errors import ServiceError


class StopReason(Enum):
    """Why decoding of a hypothesis stopped; the names of the wire."""

    EOS = "eos"
    LENGTH = "length"
    STOP_SEQUENCE = "stop_sequence"
    TIME_LIMIT = "time_limit"


@dataclass(slots=True)
class Timeline:
    """When a request reached each stage, on the monotonic clock, in seconds; 0 where it did not."""

    arrived_s: float = field(default_factory=time.monotonic)
    encode_began_s: float = 0.0
    encode_ended_s: float = 0.0
    first_token_s: float = 0.0
    finished_s: float = 0.0
    batch_rows: int = 0
    """Rows that shared the step of its first token."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the values alone: one comes with every answer."""
        return Timeline, (
            self.arrived_s,
            self.encode_began_s,
            self.encode_ended_s,
            self.first_token_s,
            self.finished_s,
            self.batch_rows,
        )


def floats(data: bytes) -> array[float]:
    """Decodes float32 values, as events have them, in this machine's byte order."""
    values = array("f")
    values.frombytes(data)
    return values


class Progress(NamedTuple):
    """New tokens of a streamed request."""

    token_ids: list[int]


class TopTokens(NamedTuple):
    """Tokens of one step and their log-probabilities, best first, in a seventh of pairs' memory."""

    token_ids: array[int]
    log_probabilities: array[float]

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, float]] = ()) -> TopTokens:
        """Keeps pairs of a token and its log-probability."""
        return cls(array("i", [id_ for id_, _ in pairs]), array("d", [each for _, each in pairs]))


class Hypothesis(NamedTuple):
    """One generated target."""

    token_ids: list[int]
    """Generated token ids, without the end token."""
    score: float | None
    """Sum of log-probabilities, with a generated end token, without a prefix; None unless
    requested."""
    stop_reason: StopReason
    normalized_score: float | None = None
    """The score divided by a power of the length; hypotheses are ranked by it."""
    token_scores: Sequence[float] = ()
    """Log-probability of each token and of the end token, NaN within a prefix; empty unless asked
    for."""
    top_tokens: Sequence[TopTokens] = ()
    """Top-k tokens of each step; empty unless requested."""
    text_length: int | None = None
    """Characters before a stop sequence; None if the text has none."""
    attention: bytes = b""
    """Attention of each token to the source, float32 ``[T, S]``; empty unless requested."""
    unmet_terms: Sequence[int] = ()
    """Indexes of the terms that the hypothesis does not contain."""

    def attention_rows(self, width: int) -> list[array[float]]:
        """Returns for each token its weights for the ``width`` tokens of the source."""
        weights = floats(self.attention)
        return [weights[begin : begin + width] for begin in range(0, len(weights), width)]


class Finished(NamedTuple):
    """The answer of a request to generate; its last event."""

    hypotheses: list[Hypothesis]
    """Best first."""

    @property
    def best(self) -> Hypothesis:
        """The first hypothesis."""
        return self.hypotheses[0]


class TargetScored(NamedTuple):
    """The answer of a request to score a target; its last event."""

    token_scores: list[float]
    """Log-probability of each token."""
    weights: list[bytes]
    """Attention weights of the encoder ``[L, H, S, S]``, the decoder ``[L, H, T, T]`` (no layers
    where it is recurrent) and the cross-attention ``[L, H, T, S]``, float32; empty unless asked
    for."""


class Failed(NamedTuple):
    """The last event of a request that failed."""

    error: ServiceError


Event = Progress | Finished | TargetScored | Failed
