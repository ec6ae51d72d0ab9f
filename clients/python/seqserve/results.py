"""What the client gives back: plain frozen values that know nothing of protobuf or gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class StopReason(Enum):
    """Why decoding of a hypothesis stopped."""

    UNSPECIFIED = "unspecified"
    """The server did not say, or gave a reason that this client is too old to know."""
    EOS = "eos"
    """The model generated the end token."""
    LENGTH = "length"
    """The longest allowed length was reached."""
    STOP_SEQUENCE = "stop_sequence"
    """A stop sequence was generated."""
    TIME_LIMIT = "time_limit"
    """The time limit of the request was reached."""


class ModelState(Enum):
    """Whether a model can be called."""

    UNSPECIFIED = "unspecified"
    """The server did not say, or gave a state that this client is too old to know."""
    READY = "ready"
    """Takes calls."""
    LOADING = "loading"
    """Being verified, loaded, warmed up and tested."""
    FAILED = "failed"
    """Could not be loaded; the model's ``state_reason`` says why."""
    DRAINING = "draining"
    """Finishes the calls that it has accepted and takes no new ones."""
    AVAILABLE = "available"
    """In the server's repository, not loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopToken:
    """One of the most probable tokens of a step."""

    token: str
    """The token as the tokenizer writes it."""
    token_id: int
    """Its number in the vocabulary."""
    score: float
    """Its natural log-probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One generated text."""

    text: str
    """The text."""
    tokens: tuple[str, ...]
    """Its tokens as the tokenizer writes them, the end token left out."""
    token_ids: tuple[int, ...]
    """The same tokens as numbers of the vocabulary."""
    score: float | None
    """Sum of the natural log-probabilities of the tokens, the end token included if it was
    generated, a prefix left out; None if scores were not computed."""
    normalized_score: float | None
    """The score divided by the length to the power of the length penalty; hypotheses are ranked by
    it. None if scores were not computed."""
    stop_reason: StopReason
    """Why decoding stopped."""
    token_scores: tuple[float, ...] = ()
    """The natural log-probability of each token, then that of the end token where it was generated;
    not a number for tokens of a prefix. Empty unless asked for."""
    top_tokens: tuple[tuple[TopToken, ...], ...] = ()
    """The most probable tokens of each step, best first; empty unless asked for."""
    attention: tuple[tuple[float, ...], ...] = ()
    """For each token a weight for each of the result's ``source_pieces``; empty unless asked
    for."""
    unmet_terms: tuple[tuple[str, str], ...] = ()
    """Source and target of each term that is in the source, but not in this hypothesis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Where the time of a request went, in milliseconds, measured on the server."""

    queue_ms: float
    """From arrival until the engine began to encode the source."""
    encode_ms: float
    """Encoding of the source."""
    decode_ms: float
    """From the end of encoding until the last token."""
    first_token_ms: float
    """From arrival until the first token was chosen."""
    total_ms: float
    """From arrival until the answer was ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything generated from one source; the properties speak of the best hypothesis."""

    hypotheses: tuple[Hypothesis, ...]
    """The hypotheses, best first; at least one."""
    model: str
    """Name of the model that answered."""
    version: int
    """Version of the model that answered."""
    source_tokens: int
    """Source tokens read, the end token counted."""
    generated_tokens: int
    """Target tokens generated over all hypotheses, the end tokens not counted."""
    timings: Timings
    """Where the time went."""
    source_pieces: tuple[str, ...] = ()
    """The source tokens as the tokenizer writes them, the end token last; empty unless attention is
    asked for."""

    @property
    def text(self) -> str:
        """The generated text."""
        return self.hypotheses[0].text

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the text as the tokenizer writes them."""
        return self.hypotheses[0].tokens

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens of the text as numbers of the vocabulary."""
        return self.hypotheses[0].token_ids

    @property
    def score(self) -> float | None:
        """Sum of the natural log-probabilities of the tokens; None if it was not computed."""
        return self.hypotheses[0].score

    @property
    def stop_reason(self) -> StopReason:
        """Why decoding stopped."""
        return self.hypotheses[0].stop_reason

    @property
    def unmet_terms(self) -> tuple[tuple[str, str], ...]:
        """Source and target of each term that is in the source, but not in the text."""
        return self.hypotheses[0].unmet_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One step of a stream. The texts of all pieces, joined, are the text of the result."""

    text: str
    """Text that is new and final; empty in the last piece."""
    token_ids: tuple[int, ...] = ()
    """The tokens that the new text came from."""
    result: Result | None = None
    """The whole answer, in the last piece; None before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """How probable a target is."""

    model: str
    """Name of the model that answered."""
    version: int
    """Version of the model that answered."""
    tokens: tuple[str, ...]
    """The tokens of the target as the tokenizer writes them, the end token last."""
    token_ids: tuple[int, ...]
    """The same tokens as numbers of the vocabulary."""
    token_scores: tuple[float, ...]
    """The natural log-probability of each of them."""
    score: float
    """Their sum."""
    normalized_score: float
    """The score divided by the number of tokens."""
    source_tokens: int
    """Source tokens read, the end token counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One version of one model as the server sees it."""

    name: str
    """The name that calls give."""
    version: int
    """The version."""
    state: ModelState
    """Whether it can be called."""
    state_reason: str
    """Why it cannot be called; empty when there is no more to say than the state."""
    is_default: bool
    """Whether calls that name no model and no version come here, all or some."""
    precision: str
    """Precision of weights and arithmetic: fp32, fp16 or int8."""
    provider: str
    """Execution provider that runs it: cpu or cuda."""
    max_source_length: int
    """Longest source, in tokens, the end token counted."""
    max_target_length: int
    """Longest target, in tokens, the end token not counted."""
    vocabulary_size: int
    """Words of the vocabulary."""
    description: str
    """What the model is for."""
    licence: str
    """Licence of the model, an SPDX identifier."""
    traffic_share: float = 0.0
    """Share of the calls that name no version which come here, from 0 to 1."""
