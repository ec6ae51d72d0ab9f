"""Decoding options as the engine takes them: checked, and with the model's defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from seqserve_server.contract.limits import MAX_TOP_K


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
            (sampling is not None and not 0 < sampling.top_k <= MAX_TOP_K)
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
    def needs_proposals(self) -> bool:
        """Whether a token may come next that is not the graph's own choice."""
        return bool(
            self.needs_distribution
            or self.prefix
            or self.return_top_tokens
            or self.return_alternatives
        )

    @property
    def is_inspected(self) -> bool:
        """Whether the search looks at its rows one by one: the next token, or the end, may differ
        from what the graph gives."""
        return bool(self.needs_proposals or self.end_ids or self.stops)

    @property
    def may_suppress(self) -> bool:
        """Whether some tokens may be suppressed in its rows at some time."""
        return bool(self.min_decoding_length) or self.suppression_depends_on_output

    @property
    def suppression_depends_on_output(self) -> bool:
        """Whether the suppressed tokens depend on the tokens so far, not on their number alone."""
        return bool(self.suppressed or self.no_repeat_ngram_size)

    @property
    def is_plain(self) -> bool:
        """Whether the graph's own choice, the best token, is enough. A request that samples, takes
        several rows or returns the score of each token is not plain, yet need not be inspected."""
        return (
            self.rows == 1
            and self.sampling is None
            and not self.is_inspected
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
