"""Decoding options as the engine takes them: checked, converted, with the defaults of the model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

from seqserve_server.contract.limits import MAX_TOP_K

TokenIds: TypeAlias = tuple[int, ...]


class SegmentationMode(Enum):
    """Where a source may be divided into segments; the values of the API."""

    NONE = "none"
    LINES = "lines"
    SENTENCES = "sentences"


class Sampling(NamedTuple):
    """How tokens are sampled; the filters apply in this order."""

    temperature: float
    top_k: int
    """Number of most probable tokens that stay; 0 for all."""
    top_p: float
    """Probability that the tokens that stay have together, at least."""
    min_p: float
    """Probability of each token that stays, at least, as a share of the highest."""
    seed: int

    @property
    def is_ranked(self) -> bool:
        """Whether the most probable tokens alone stay, so that tokens must be sorted."""
        return self.top_k > 0 or self.top_p < 1.0


ANY_TOKEN = -1
"""The first one of two suppressed tokens: the second one is generated at the beginning alone."""
BEGIN = -2
"""The first one of suppressed tokens: the others are not generated at the beginning."""


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How to decode one request.

    Fields with the name of a field of ``GenerationOptions`` have its meaning and default. Requests
    share equal options, so what follows from the fields is computed once.
    """

    max_decoding_length: int
    min_decoding_length: int = 0
    force_end_token: bool = False
    beam_size: int = 1
    patience: float = 1.0
    early_stopping: str = ""
    """One of the rules of transformers; empty for CTranslate2's."""
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    num_hypotheses: int = 1
    return_alternatives: bool = False
    min_alternative_expansion_prob: float = 0.0
    sampling: Sampling | None = None
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppressed: tuple[TokenIds, ...] = ()
    """Sequences of token ids that are never generated."""
    end_ids: TokenIds = ()
    """Token ids that end a hypothesis; the end token of the model if empty."""
    stops: tuple[str, ...] = ()
    """Texts that end a hypothesis."""
    prefix: TokenIds = ()
    """Token ids that every hypothesis begins with."""
    prefix_bias_beta: float = 0.0
    terms: tuple[TokenIds, ...] = ()
    """Token ids of each target that every hypothesis of a beam should contain."""
    vocabulary: TokenIds = ()
    """The only token ids that are generated, ascending and with the end tokens; all if empty."""
    shortlist: bool = True
    """Whether to choose from the shortlist of the model, where it has one and no ``vocabulary``."""
    return_scores: bool = True
    return_token_scores: bool = False
    return_top_tokens: int = 0
    return_attention: bool = False
    time_limit_s: float = math.inf
    """Time from the arrival of the request after which it returns what is decoded by then."""

    @cached_property
    def rows(self) -> int:
        """Number of slots that the request takes."""
        if self.return_alternatives:
            return self.beam_size * self.num_hypotheses
        return max(self.beam_size, self.num_hypotheses)

    def is_within_shared_prefix(self, length: int) -> bool:
        """Returns whether all alternatives are equal at this length: the prefix, or less."""
        return self.return_alternatives and length <= len(self.prefix)

    @cached_property
    def is_persistent(self) -> bool:
        """Whether a beam search goes on after enough is finished, while it may find better."""
        is_plain = not (self.terms or self.coverage_penalty)
        return is_plain and self.early_stopping in ("false", "never")

    @cached_property
    def changes_probabilities(self) -> bool:
        """Whether the next token is chosen by changed probabilities."""
        return bool(self.repetition_penalty != 1.0 or self.prefix_bias_beta or self.terms)

    @cached_property
    def samples_all(self) -> bool:
        """Whether it samples among all tokens, whatever their order."""
        sampling = self.sampling
        return bool(sampling and not sampling.is_ranked and not self.changes_probabilities)

    @cached_property
    def needs_distribution(self) -> bool:
        """Whether the next token needs logits of all tokens, not only the top-k of the graph."""
        sampling = self.sampling
        sorts_many = sampling and sampling.is_ranked and not 0 < sampling.top_k <= MAX_TOP_K
        return bool(self.changes_probabilities or sorts_many)

    def is_branching_token(self, length: int) -> bool:
        """Returns whether the last token at this length is the one in which alternatives differ."""
        return self.return_alternatives and length == len(self.prefix) + 1

    @cached_property
    def suppressed_tokens(self) -> frozenset[int]:
        """Token ids that are never generated, whatever comes before them."""
        return frozenset(sequence[0] for sequence in self.suppressed if len(sequence) == 1)

    @cached_property
    def needs_attention(self) -> bool:
        """Whether the attention of finished hypotheses must be computed."""
        return self.return_attention or self.coverage_penalty > 0.0

    @cached_property
    def needs_proposals(self) -> bool:
        """Whether a token may come next that is not the graph's own choice."""
        return bool(
            self.needs_distribution
            or self.prefix
            or self.return_top_tokens
            or self.return_alternatives
        )

    @cached_property
    def is_inspected(self) -> bool:
        """Whether the search looks at each row, because the graph's token or end may not hold."""
        return bool(self.needs_proposals or self.end_ids or self.stops)

    @cached_property
    def may_suppress(self) -> bool:
        """Whether some tokens may be suppressed in its rows at some time."""
        return bool(self.min_decoding_length or self.suppressed or self.no_repeat_ngram_size)

    @cached_property
    def suppression_depends_on_output(self) -> bool:
        """Whether the suppressed tokens depend on the tokens so far, not on their number alone."""
        is_longer = (len(sequence) > 1 for sequence in self.suppressed)
        return bool(self.no_repeat_ngram_size) or any(is_longer)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the graph's choice, the best token, is all that the request needs."""
        return (
            self.rows == 1
            and self.sampling is None
            and not self.is_inspected
            and not self.return_token_scores
        )

    @cached_property
    def follows_drafts(self) -> bool:
        """Whether a draft may save steps: its row takes the graph's own choice after the prefix."""
        changes_choice = self.sampling or self.needs_distribution or self.may_suppress
        reads_lists = self.return_top_tokens or self.return_alternatives
        return self.rows == 1 and not (changes_choice or reads_lists)

    @cached_property
    def outcome(self) -> str:
        """Writes all that whole answers depend on: every option but the time limit."""
        return repr(replace(self, time_limit_s=math.inf))

    @cached_property
    def _changed(self) -> tuple[tuple[str, Any], ...]:
        pairs = ((name, getattr(self, name), default) for name, default in _DEFAULTS)
        return tuple((name, value) for name, value, default in pairs if value != default)

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared_options, (self._changed,)


_DEFAULTS = tuple((entry.name, entry.default) for entry in fields(DecodingOptions))


@lru_cache(maxsize=256)
def _shared_options(changed: tuple[tuple[str, Any], ...]) -> DecodingOptions:
    return DecodingOptions(**dict(changed))


def fault_of_term(term: TokenIds, options: DecodingOptions, ends: set[int]) -> str:
    """Returns why no hypothesis can have the tokens of a term; empty if one can."""
    if not options.suppressed_tokens.isdisjoint(term):
        return "is suppressed"
    if not ends.isdisjoint(term):
        return "ends a hypothesis"
    if options.vocabulary and not set(options.vocabulary).issuperset(term):
        return "is not in vocabulary_allow"
    return ""


def missing_terms(terms: Sequence[TokenIds], token_ids: Sequence[int]) -> list[int]:
    """Returns the indexes of the terms that ``token_ids`` do not contain."""
    return [index for index, term in enumerate(terms) if not _contains(token_ids, term)]


def _contains(token_ids: Sequence[int], term: TokenIds) -> bool:
    ends = range(len(term), len(token_ids) + 1)
    return any(tuple(token_ids[end - len(term) : end]) == term for end in ends)


def matched_prefix(token_ids: Sequence[int], term: TokenIds) -> int:
    """Counts the leading tokens of a term with which ``token_ids`` end; the whole term is 0."""
    lengths = range(min(len(term) - 1, len(token_ids)), 0, -1)
    return next((n for n in lengths if tuple(token_ids[-n:]) == term[:n]), 0)
