"""Hypotheses: the tokens of one row, the finished ones of a request, and their ranking."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqserve_server.contract.events import Finished, Hypothesis, StopReason, TopTokens
from seqserve_server.contract.options import DecodingOptions, missing_terms
from seqserve_server.engine.decoding.constraints import Constraints, End
from seqserve_server.engine.decoding.logits import normalized
from seqserve_server.engine.packing import Array
from seqserve_server.engine.request import Request


class PartialHypothesis(NamedTuple):
    """The tokens of one row."""

    token_ids: list[int]
    """Prefix and end token included."""
    log_probabilities: list[float]
    """Log-probability of each token; NaN if it was forced."""
    score: float
    """Their sum, forced tokens left out."""
    top_tokens: list[TopTokens]
    """Top tokens of each step; empty unless requested."""

    def extended(
        self, token: int, log_probability: float, score: float, top_tokens: TopTokens
    ) -> PartialHypothesis:
        """Returns the hypothesis with one more token, and its new score."""
        return PartialHypothesis(
            [*self.token_ids, token],
            [*self.log_probabilities, log_probability],
            score,
            [*self.top_tokens, top_tokens],
        )

    def hypothesis(self, end: End, options: DecodingOptions) -> Hypothesis:
        """Returns the requested parts of it, up to the last token that counts."""
        # Coverage is added to the score later.
        is_scored = options.return_scores or options.coverage_penalty
        by_length = normalized(self.score, len(self.token_ids), options.length_penalty)
        terms = options.terms
        # The end token was generated too, but not what comes after a stop sequence.
        generated = end.length + (end.reason is StopReason.EOS)
        return Hypothesis(
            token_ids=self.token_ids[: end.length],
            score=self.score if is_scored else None,
            stop_reason=end.reason,
            normalized_score=by_length if is_scored else None,
            token_scores=self.log_probabilities[:generated] if options.return_token_scores else (),
            top_tokens=self.top_tokens[:generated] if options.return_top_tokens else (),
            text_length=end.text_length,
            unmet_terms=missing_terms(terms, self.token_ids[: end.length]) if terms else (),
        )


Rank = tuple[bool, int, float]
"""Hypotheses are sorted by it; the lowest is the best."""


def rank_of(hypothesis: Hypothesis, score: float) -> Rank:
    """Ranks a hypothesis: interrupted ones last, then by unmet terms, then by normalised score."""
    is_cut = hypothesis.stop_reason is StopReason.TIME_LIMIT
    return is_cut, len(hypothesis.unmet_terms), -score


class FinishedHypothesis(NamedTuple):
    """A hypothesis that has ended, and its rank."""

    hypothesis: Hypothesis
    rank: Rank

    @classmethod
    def of(
        cls, partial: PartialHypothesis, end: End, options: DecodingOptions
    ) -> FinishedHypothesis:
        """Ends a row's hypothesis."""
        hypothesis = partial.hypothesis(end, options)
        score = normalized(partial.score, len(partial.token_ids), options.length_penalty)
        return cls(hypothesis, rank_of(hypothesis, score))

    @classmethod
    def cut(cls, partial: PartialHypothesis, options: DecodingOptions) -> FinishedHypothesis:
        """Interrupts a row's hypothesis where it is."""
        return cls.of(partial, End(StopReason.TIME_LIMIT, len(partial.token_ids)), options)

    def as_alternative(self, index: int) -> FinishedHypothesis:
        """Ranks it as an alternative: in the order of the first tokens."""
        return self._replace(rank=(False, 0, index))


def best(finished: list[FinishedHypothesis], count: int) -> list[FinishedHypothesis]:
    """Returns the ``count`` best, best first; among equals the one that ended first."""
    return sorted(finished, key=lambda entry: entry.rank)[:count]


class HypothesisPool:
    """Collects the finished hypotheses of one request from all its searches."""

    def __init__(self, request: Request, constraints: Constraints, num_searches: int) -> None:
        """Starts empty; ``num_searches`` searches, or rows without a beam, add to it."""
        self.request = request
        self.options = request.options
        self.constraints = constraints
        self._num_running = num_searches
        self._finished: list[FinishedHypothesis] = []

    def add(self, finished: list[FinishedHypothesis]) -> list[tuple[Request, Finished]]:
        """Takes the hypotheses of one search; gives the answer with the last search."""
        self._finished += finished
        self._num_running -= 1
        return [] if self._num_running else [(self.request, self._answer())]

    def cut(self, finished: list[FinishedHypothesis]) -> Finished:
        """Takes the hypotheses of interrupted searches, and gives the answer."""
        self._finished += finished
        return self._answer()

    def _answer(self) -> Finished:
        # Coverage may still bring any of them to the top.
        count = (
            len(self._finished) if self.options.coverage_penalty else self.options.num_hypotheses
        )
        return Finished([entry.hypothesis for entry in best(self._finished, count)])


Attended = tuple[Hypothesis, Array]
"""A finished hypothesis and its attention to the source, ``[T, S]``."""


def coverage(weights: Array) -> float:
    """Sums the logarithms of the attention ``[T, S]`` that each source token got, at most 1 each.

    Source: Wu et al. 2016, "Google's Neural Machine Translation System", section 7, formula 14.
    """
    attention = weights.sum(axis=0, dtype=np.float64)
    return float(np.log(np.minimum(attention[attention > 0], 1.0)).sum())


def ranked_by_coverage(finished: list[Attended], options: DecodingOptions) -> list[Attended]:
    """Adds coverage to the normalised scores and keeps the best hypotheses, best first."""
    ranked = []
    for hypothesis, weights in finished:
        assert hypothesis.normalized_score is not None
        score = hypothesis.normalized_score + options.coverage_penalty * coverage(weights)
        shown = score if options.return_scores else None
        kept = hypothesis.score if options.return_scores else None
        scored = hypothesis._replace(score=kept, normalized_score=shown)
        ranked.append((rank_of(hypothesis, score), (scored, weights)))
    ranked.sort(key=lambda entry: entry[0])
    return [pair for _, pair in ranked[: options.num_hypotheses]]
