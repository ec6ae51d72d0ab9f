"""One request as the engine sees it: what is asked, how far it is, and what it is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from seqserve_server.errors import ServiceError


class StopReason(Enum):
    """Why decoding of a hypothesis stopped; the names of the wire."""

    EOS = "eos"
    LENGTH = "length"


class RequestState(Enum):
    """How far a request is. It moves down this list, and may leave it anywhere."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """How to decode, checked and with the model's defaults filled in."""

    max_decoding_length: int
    """Most target tokens, the end token not counted."""
    min_decoding_length: int = 0
    """Fewest target tokens before the end token is allowed."""
    return_scores: bool = True
    """Whether the score is wanted; a step is a little cheaper when no row asks for it."""


@dataclass(slots=True)
class Timeline:
    """When a request reached each stage, on the monotonic clock, in seconds; 0 where it did not."""

    arrived_s: float = field(default_factory=time.monotonic)
    encode_began_s: float = 0.0
    encode_ended_s: float = 0.0
    first_token_s: float = 0.0
    finished_s: float = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes its pickle small; one goes from process to process with every answer."""
        return Timeline, (
            self.arrived_s,
            self.encode_began_s,
            self.encode_ended_s,
            self.first_token_s,
            self.finished_s,
        )


class Progress(NamedTuple):
    """New tokens of a streamed request."""

    token_ids: list[int]


class Finished(NamedTuple):
    """The whole answer; the last event of a request that went well."""

    token_ids: list[int]
    """Without the end token."""
    score: float | None
    """Sum of log-probabilities, that of the end token included where it was generated; None where
    it was not asked for."""
    stop_reason: StopReason


class Failed(NamedTuple):
    """The last event of a request that did not go well."""

    error: ServiceError


Event = Progress | Finished | Failed


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """A source on its way through the engine."""

    source: list[int]
    """Token ids, the end token last."""
    options: DecodingOptions
    receive: Callable[[Event], None]
    """Told of every event, by whatever the engine was given to deliver them."""
    deadline_s: float | None = None
    """On the monotonic clock."""
    streamed: bool = False
    """Whether progress is told at every step."""
    number: int = 0
    """What stands for it between two processes."""
    state: RequestState = RequestState.NEW
    timeline: Timeline = field(default_factory=Timeline)
