"""One request as the engine sees it: what is asked, how far it is, and what it is told.

All times are in seconds. ``time_limit_s`` is a duration; the others are moments of the monotonic
clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

from seqserve_server.engine.limits import MOST_RANKS
from seqserve_server.errors import ServiceError


class StopReason(Enum):
    """Why decoding of a hypothesis stopped; the names of the wire."""

    EOS = "eos"
    LENGTH = "length"
    STOP_SEQUENCE = "stop_sequence"
    TIME_LIMIT = "time_limit"


class Priority(Enum):
    """Who goes first; the names of the wire."""

    NORMAL = "normal"
    LOW = "low"


class Sampling(NamedTuple):
    """How words are drawn; in this order."""

    temperature: float
    """What logits are divided by."""
    top_k: int
    """How many most probable words stay; 0 for all."""
    top_p: float
    """How much probability the words that stay have together, at least."""
    min_p: float
    """How probable they are at least, as a share of the most probable one."""
    seed: int
    """Where the random numbers begin."""


class RequestState(Enum):
    """How far a request is. It moves down this list, and may leave it anywhere."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    DECODED = "decoded"
    """It has left its slots, and waits to be told what it attended to."""
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """How to decode, checked and with the model's defaults filled in."""

    max_decoding_length: int
    """Most target tokens, a prefix counted, the end token not."""
    min_decoding_length: int = 0
    """Fewest target tokens before the end token is allowed."""
    beam_size: int = 1
    """Hypotheses kept at every step; with 1 each row chooses for itself."""
    patience: float = 1.0
    """Search ends when ``beam_size`` times so many hypotheses are finished."""
    length_penalty: float = 1.0
    """Exponent of the length by which scores are divided to rank hypotheses."""
    coverage_penalty: float = 0.0
    """Weight of the source that was left unattended, in the ranking of hypotheses of a beam."""
    num_hypotheses: int = 1
    """Best hypotheses of a beam, samples, or alternatives."""
    return_alternatives: bool = False
    """Whether hypotheses differ in the first token after the prefix, each searched by itself."""
    min_alternative_expansion_prob: float = 0.0
    """How probable the first token of an alternative is at least."""
    sampling: Sampling | None = None
    """How to draw words; the best one is taken where None."""
    repetition_penalty: float = 1.0
    """What the scores of words that a hypothesis holds are divided by, or multiplied."""
    no_repeat_ngram_size: int = 0
    """Length of sequences that are not generated twice; 0 for none."""
    suppressed: tuple[tuple[int, ...], ...] = ()
    """Sequences of tokens that are not generated."""
    end_ids: tuple[int, ...] = ()
    """Tokens that end a hypothesis; the model's own where empty."""
    stops: tuple[str, ...] = ()
    """Texts that end a hypothesis."""
    prefix: tuple[int, ...] = ()
    """Tokens that every hypothesis begins with."""
    prefix_bias_beta: float = 0.0
    """Share of the probability that goes to the next token of the prefix, which is forced where
    this is 0."""
    terms: tuple[tuple[int, ...], ...] = ()
    """Tokens, one after the other, that every hypothesis of a beam is to contain."""
    vocabulary: tuple[int, ...] = ()
    """The only tokens that are generated, rising, those that end a hypothesis among them; all where
    empty."""
    return_scores: bool = True
    """Whether the score is wanted; a step is a little cheaper when no row asks for it."""
    return_token_scores: bool = False
    """Whether the score of each token is wanted."""
    return_top_tokens: int = 0
    """How many best tokens of each step are wanted."""
    return_attention: bool = False
    """Whether the attention to the source is wanted."""
    time_limit_s: float = math.inf
    """When the answer is what there is by then, from the arrival of the request on."""

    @property
    def rows(self) -> int:
        """Slots that a request takes."""
        if self.return_alternatives:
            return self.beam_size * self.num_hypotheses
        return max(self.beam_size, self.num_hypotheses)

    def is_within_shared_prefix(self, length: int) -> bool:
        """Tells whether alternatives of so many tokens are still one: the prefix, or less."""
        return self.return_alternatives and length <= len(self.prefix)

    @property
    def needs_distribution(self) -> bool:
        """Whether each next token is chosen from a distribution over all that may come, not from
        the best that the graph lists: the request changes scores, or draws among too many."""
        sampling = self.sampling
        return bool(
            (sampling is not None and not 0 < sampling.top_k <= MOST_RANKS)
            or self.repetition_penalty != 1.0
            or self.prefix_bias_beta
            or self.terms
            or self.vocabulary
        )

    def is_branching_token(self, length: int) -> bool:
        """Tells whether the last of so many tokens is the one in which alternatives differ."""
        return self.return_alternatives and length == len(self.prefix) + 1

    @property
    def needs_attention(self) -> bool:
        """Whether the attention of finished hypotheses has to be found."""
        return self.return_attention or self.coverage_penalty > 0.0

    @property
    def is_guided(self) -> bool:
        """Whether the search looks at its rows one by one: what comes next, or where they end, may
        be other than what the graph gives."""
        return bool(
            self.needs_distribution
            or self.prefix
            or self.end_ids
            or self.stops
            or self.return_top_tokens
            or self.return_alternatives
        )

    @property
    def may_ban(self) -> bool:
        """Whether its rows may ever have to be kept from some tokens."""
        return bool(self.min_decoding_length) or self.bans_depend_on_history

    @property
    def bans_depend_on_history(self) -> bool:
        """Whether which ones those are depends on the tokens so far, not on their number alone."""
        return bool(self.suppressed or self.no_repeat_ngram_size)

    @property
    def is_plain(self) -> bool:
        """Whether the graph's own choice, the best token, is all it needs. One that samples, has
        several rows or wants the score of each token is not plain, but need not be guided."""
        return (
            self.rows == 1
            and self.sampling is None
            and not self.is_guided
            and not self.return_token_scores
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes its pickle small: most requests change little."""
        changed = {
            entry.name: value
            for entry in fields(self)
            if (value := getattr(self, entry.name)) != entry.default
        }
        return _options, (changed,)


def _options(changed: dict[str, Any]) -> DecodingOptions:
    return DecodingOptions(**changed)


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
    target: list[int] | None = None
    """Token ids to be scored, where nothing is to be generated."""
    wants_attention: bool = False
    """Whether the attention of the target is wanted beside its scores."""
    caller: str = ""
    """Who asks; the queue is fair among callers."""
    priority: Priority = Priority.NORMAL
    number: int = 0
    """What stands for it between two processes."""
    call_id: str = ""
    """Id of the call that it is of, for the log."""
    state: RequestState = RequestState.NEW
    passed_rows: int = 0
    """Slots that others have taken before it, because it needs more than were free."""
    tokens_done: int = 0
    """Tokens of its hypotheses when it left its slots, whether or not anybody is told them."""
    timeline: Timeline = field(default_factory=Timeline)

    @property
    def limit_s(self) -> float:
        """When its time limit is reached, on the monotonic clock; infinite without one."""
        return self.timeline.arrived_s + self.options.time_limit_s

    @property
    def begin_by_s(self) -> float:
        """Latest time at which it makes sense to begin: its deadline or its time limit; infinite
        without either."""
        return self.limit_s if self.deadline_s is None else min(self.limit_s, self.deadline_s)

    @property
    def work(self) -> int:
        """Tokens that it is expected to cost: those read, and as many written in each row."""
        if self.target is not None:
            return len(self.source) + len(self.target)
        options = self.options
        written = max(len(self.source), options.min_decoding_length)
        return len(self.source) + options.rows * min(written, options.max_decoding_length)
