"""What the engine answers to a request, event by event, and when it reached each stage.

Times are in seconds on the monotonic clock.
"""

from __future__ import annotations

import time
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
        """Makes its pickle small; one goes from process to process with every answer."""
        return Timeline, (
            self.arrived_s,
            self.encode_began_s,
            self.encode_ended_s,
            self.first_token_s,
            self.finished_s,
            self.batch_rows,
        )


class Progress(NamedTuple):
    """New tokens of a streamed request."""

    token_ids: list[int]


class Hypothesis(NamedTuple):
    """One target."""

    token_ids: list[int]
    """Without the end token."""
    score: float | None
    """Sum of log-probabilities, that of the end token included where it was generated and those of
    a prefix left out; None where it was not asked for."""
    stop_reason: StopReason
    normalized_score: float | None = None
    """What hypotheses are ranked by: the score by the length, to the power asked for."""
    token_scores: Sequence[float] = ()
    """Of each token and of the end token, not a number within a prefix; empty unless asked for."""
    top_tokens: Sequence[list[tuple[int, float]]] = ()
    """Best tokens of each step and their log-probabilities; empty unless asked for."""
    text_length: int | None = None
    """Characters of the text that count, where a stop sequence comes after them."""
    attention: bytes = b""
    """Weights of the source for each token, float32 ``[T, S]``; empty unless asked for."""
    unmet_terms: Sequence[int] = ()
    """Which of the terms it does not contain."""


class Finished(NamedTuple):
    """The whole answer; the last event of a request that went well."""

    hypotheses: list[Hypothesis]
    """Best first."""

    @property
    def best(self) -> Hypothesis:
        """Gives the first of them."""
        return self.hypotheses[0]


class TargetScored(NamedTuple):
    """What is known of a target that came with its request; its last event where it went well."""

    token_scores: list[float]
    """The log-probability of each token."""
    weights: list[bytes]
    """Attention of encoder ``[L, H, S, S]``, decoder ``[L, H, T, T]`` and from the one to the
    other ``[L, H, T, S]``, float32; empty where it was not asked for."""


class Failed(NamedTuple):
    """The last event of a request that did not go well."""

    error: ServiceError


Event = Progress | Finished | TargetScored | Failed
