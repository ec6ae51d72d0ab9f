"""Results of the client: frozen dataclasses without protobuf or gRPC."""

from dataclasses import dataclass
from enum import Enum

from seqserve import pictures


class StopReason(Enum):
    """Why decoding of a hypothesis stopped."""

    UNSPECIFIED = "unspecified"
    """The server gave no reason, or one that this client does not know."""
    EOS = "eos"
    """The model generated the end token."""
    LENGTH = "length"
    """The longest allowed length was reached."""
    STOP_SEQUENCE = "stop_sequence"
    """A stop sequence was generated."""
    TIME_LIMIT = "time_limit"
    """The time limit of the request was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopToken:
    """One of the most probable tokens of a step."""

    token: str
    """The token as the tokenizer writes it."""
    token_id: int
    score: float
    """Its natural log-probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedToken:
    """A token of the target and the source token that it attends to most. Places count characters,
    in a segment from its own beginning, and leave out white space."""

    source_begin: int
    source_end: int
    target_begin: int
    target_end: int


class Placement(Enum):
    """How a part of the source that is kept came to its place in the text."""

    UNSPECIFIED = "unspecified"
    GENERATED = "generated"
    """The model wrote it."""
    ALIGNED = "aligned"
    """It replaces what the model wrote from it."""
    INSERTED = "inserted"
    """The model wrote nothing for it, so it follows the translation of the word before it."""
    LOST = "lost"
    """The text ended before it, at a limit or a stop sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptText:
    """A part of the source that came back as it was. Places count characters, in a segment from its
    own beginning."""

    text: str
    source_begin: int
    source_end: int
    target_begin: int
    target_end: int
    """Where it ends; as ``target_begin`` if it is lost."""
    placement: Placement


class SourceWarning(Enum):
    """Why a source is probably not what its model reads; the answer may be fluent nonsense."""

    UNSPECIFIED = "unspecified"
    UNKNOWN_CHARACTERS = "unknown_characters"
    """It has letters or symbols that the vocabulary of the model lacks, and the answer too."""
    OTHER_SCRIPT = "other_script"
    """At least three in ten of its letters are of scripts that the vocabulary does not have."""
    MARKUP = "markup"
    """It has tags of HTML or XML; they are read as text."""


class TextWarningKind(Enum):
    """A possible fault of a text."""

    UNSPECIFIED = "unspecified"
    NUMBERS_DIFFER = "numbers_differ"
    """A number, date, time or code of the source is missing or another one, or the text has one
    that the source lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWarning:
    """Something that is probably wrong with a text. Places count characters, in a segment from its
    own beginning."""

    kind: TextWarningKind
    source_text: str
    """The part of the source that it concerns; empty if the text has something that the source
    lacks."""
    source_begin: int
    source_end: int
    target_text: str
    """The part of the text that it concerns; empty if the text lacks something."""
    target_begin: int
    target_end: int

    def __str__(self) -> str:
        reason = self.kind.value.replace("_", " ")
        return f"{reason}: {self.source_text or 'nothing'} -> {self.target_text or 'nothing'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One generated text."""

    text: str
    tokens: tuple[str, ...]
    """Its tokens as the tokenizer writes them, without the end token."""
    token_ids: tuple[int, ...]
    score: float | None
    """Sum of the natural log-probabilities of the tokens, the end token included if it was
    generated, a prefix left out; None if scores were not computed."""
    normalized_score: float | None
    """The score divided by the length to the power of the length penalty; hypotheses are ranked by
    it. None if scores were not computed."""
    stop_reason: StopReason
    token_scores: tuple[float, ...] = ()
    """The natural log-probability of each token, then of the end token if it was generated;
    NaN for tokens of a prefix. Empty unless requested."""
    top_tokens: tuple[tuple[TopToken, ...], ...] = ()
    """The most probable tokens of each step, best first; empty unless requested."""
    attention: tuple[tuple[float, ...], ...] = ()
    """Weights ``[tokens, source_pieces]``; empty unless requested."""
    unmet_terms: tuple[tuple[str, str], ...] = ()
    """Source and target of each term that the source has and this hypothesis lacks."""
    confidence: float | None = None
    """How good the text probably is, from 0 to 1: the chrF / 100 that translations like it have on
    average. It compares answers of one model. None if scores were not computed."""
    alignment: tuple[AlignedToken, ...] = ()
    """Where the tokens of the text come from; empty unless requested."""
    kept: tuple[KeptText, ...] = ()
    """Texts that ``keep`` and ``keep_placeholders`` kept, in the order of the source."""
    warnings: tuple[TextWarning, ...] = ()
    """Probable faults of the text; any fault halves the confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of the source, such as a sentence, and its answer. Offsets count characters."""

    source_begin: int
    source_end: int
    target_begin: int
    target_end: int
    is_wrapped: bool
    """Whether it is only a part of a line or sentence, which is longer than the model reads."""
    hypotheses: tuple[Hypothesis, ...]
    """The hypotheses, best first; empty if the model reads no character of the segment, which is
    then in the text as it is."""
    source_tokens: int
    """Number of source tokens, including the end token."""
    source_pieces: tuple[str, ...] = ()
    """The source tokens as the tokenizer writes them, the end token last; empty unless attention is
    requested."""
    source_warnings: tuple[SourceWarning, ...] = ()
    """Why the model probably cannot read the source; empty if nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """The work of one model, if an answer goes through an intermediate language."""

    model: str
    version: int
    source_language: str
    target_language: str
    text: str
    """The text that it wrote for the next leg; empty for the last one."""
    stop_reason: StopReason
    """Why decoding of its text stopped."""
    source_tokens: int
    generated_tokens: int
    confidence: float | None = None
    """Confidence of this text alone; None if scores were not computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedLanguage:
    """A language that a text may be in."""

    language: str
    """Its code, as the models of the server declare it."""
    confidence: float
    """How probable it is among the languages that were compared, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Durations of a request in milliseconds, measured on the server."""

    queue_ms: float
    """From arrival to the start of encoding."""
    encode_ms: float
    """Encoding of the source."""
    decode_ms: float
    """From the end of encoding to the last token."""
    first_token_ms: float
    """From arrival to the first token."""
    total_ms: float
    """From arrival to the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The hypotheses for one source; the properties belong to the best one."""

    hypotheses: tuple[Hypothesis, ...]
    """The hypotheses, best first; at least one."""
    model: str
    """Name of the model that answered; over a pivot, of the second one."""
    version: int
    source_tokens: int
    """Number of source tokens, including the end token."""
    generated_tokens: int
    """Number of generated tokens in all hypotheses, without end tokens."""
    timings: Timings
    source_pieces: tuple[str, ...] = ()
    """The source tokens as the tokenizer writes them, the end token last; empty unless attention is
    requested."""
    segments: tuple[Segment, ...] = ()
    """The segments of the source, in order; empty without segmentation. With it there is one
    hypothesis, the text of all; tokens and all that belongs to them are in the segments."""
    source_warnings: tuple[SourceWarning, ...] = ()
    """Why the model probably cannot read the source; empty if nothing is wrong."""
    legs: tuple[Leg, ...] = ()
    """The two models of a pivot, in order; empty where one model answered. The confidence of the
    hypotheses is then the product of both."""
    detected_language: DetectedLanguage | None = None
    """The language of the source; None unless the server detected it."""

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
        """The ids of the tokens of the text."""
        return self.hypotheses[0].token_ids

    @property
    def score(self) -> float | None:
        """Sum of the natural log-probabilities of the tokens; None if it was not computed."""
        return self.hypotheses[0].score

    @property
    def confidence(self) -> float | None:
        """How good the text probably is, from 0 to 1; None if scores were not computed."""
        return self.hypotheses[0].confidence

    @property
    def stop_reason(self) -> StopReason:
        """Why decoding stopped."""
        return self.hypotheses[0].stop_reason

    @property
    def unmet_terms(self) -> tuple[tuple[str, str], ...]:
        """Source and target of each term that the source has and the text lacks."""
        return self.hypotheses[0].unmet_terms

    @property
    def warnings(self) -> tuple[TextWarning, ...]:
        """Probable faults of the text."""
        return self.hypotheses[0].warnings

    def _repr_html_(self) -> str:
        return pictures.page_of_result(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One message of a stream. The joined texts of all pieces are the text of the result."""

    text: str
    """New text, which is final; empty in the last piece."""
    token_ids: tuple[int, ...] = ()
    result: Result | None = None
    """The result, in the last piece; None before."""
