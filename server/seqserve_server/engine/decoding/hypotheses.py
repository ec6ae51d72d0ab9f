"""Hypotheses that have ended, and the answers that they come to."""

from __future__ import annotations

from typing import NamedTuple

from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.terms import unmet
from seqserve_server.engine.decoding.constraints import Constraints, End
from seqserve_server.engine.decoding.logits import Ranking, normalized
from seqserve_server.engine.request import Request


class PartialHypothesis(NamedTuple):
    """The words of one row."""

    token_ids: list[int]
    """A prefix and the end token among them."""
    log_probabilities: list[float]
    """Of each token; not a number where it was forced."""
    score: float
    """Their sum, what was forced left out."""
    rankings: list[Ranking]
    """The best words of each step, where they were asked for."""

    def extended(
        self, word: int, log_probability: float, score: float, ranking: Ranking
    ) -> PartialHypothesis:
        """Says one word more, which makes its score another one."""
        token_ids, found = [*self.token_ids, word], [*self.log_probabilities, log_probability]
        return PartialHypothesis(token_ids, found, score, [*self.rankings, ranking])

    def hypothesis(self, end: End, options: DecodingOptions) -> Hypothesis:
        """Gives what it comes to.

        Args:
            end: Why it ended, and what of it counts.
            options: What was asked for.
        """
        # Coverage is added to it later.
        score = self.score if options.return_scores or options.coverage_penalty else None
        # The end token was chosen too, but not what comes after a stop sequence.
        chosen = end.kept + (end.reason is StopReason.EOS)
        return Hypothesis(
            token_ids=self.token_ids[: end.kept],
            score=score,
            stop_reason=end.reason,
            normalized_score=normalized(score, len(self.token_ids), options.length_penalty),
            token_scores=self.log_probabilities[:chosen] if options.return_token_scores else (),
            top_tokens=self.rankings[:chosen] if options.return_top_tokens else (),
            text_length=end.text_length,
            unmet_terms=unmet(options.terms, self.token_ids[: end.kept]) if options.terms else (),
        )


Place = tuple[bool, int, float]
"""What hypotheses are sorted by: the least is the best."""


def place_of(hypothesis: Hypothesis, rank: float) -> Place:
    """Gives the place of a hypothesis among others.

    Args:
        hypothesis: One that was still going on lacks the rest of its score, so that it comes after
            those that are whole.
        rank: What counts among those that lack as many terms; the highest is the best.
    """
    is_cut = hypothesis.stop_reason is StopReason.TIME_LIMIT
    return is_cut, len(hypothesis.unmet_terms), -rank


class Ended(NamedTuple):
    """A hypothesis and its place among others."""

    hypothesis: Hypothesis
    place: Place

    @classmethod
    def of(cls, said: PartialHypothesis, end: End, options: DecodingOptions) -> Ended:
        """Takes what a row has said and why that is all."""
        hypothesis = said.hypothesis(end, options)
        rank = normalized(said.score, len(said.token_ids), options.length_penalty)
        return cls(hypothesis, place_of(hypothesis, rank))

    @classmethod
    def cut(cls, said: PartialHypothesis, options: DecodingOptions) -> Ended:
        """Takes what a row has said so far."""
        return cls.of(said, End(StopReason.TIME_LIMIT, len(said.token_ids)), options)

    def as_alternative(self, number: int) -> Ended:
        """Ranks it as the alternative it is: they come in the order of their first words."""
        return self._replace(place=(False, 0, number))


def best(ended: list[Ended], count: int) -> list[Ended]:
    """Gives so many of them, best first; among equals the one that ended first."""
    return sorted(ended, key=lambda entry: entry.place)[:count]


class HypothesisPool:
    """The n best hypotheses of one request, gathered from all its searches."""

    def __init__(self, request: Request, constraints: Constraints, searches: int) -> None:
        """Begins with nothing.

        Args:
            request: What was asked.
            constraints: Of all its hypotheses.
            searches: How many go on, each by itself.
        """
        self.request = request
        self.constraints = constraints
        self._searches = searches
        self._ended: list[Ended] = []

    @property
    def options(self) -> DecodingOptions:
        """How to decode."""
        return self.request.options

    def close(self, ended: list[Ended]) -> list[tuple[Request, Finished]]:
        """Takes in what a search has found; gives the request and its answer with the last one."""
        self._ended += ended
        self._searches -= 1
        return [] if self._searches else [(self.request, self._found())]

    def cut(self, ended: list[Ended]) -> Finished:
        """Takes in what searches have that still go on, and gives the answer."""
        self._ended += ended
        return self._found()

    def _found(self) -> Finished:
        # What covers most of the source may yet come to the top.
        count = len(self._ended) if self.options.coverage_penalty else self.options.num_hypotheses
        found = best(self._ended, count)
        return Finished([entry.hypothesis for entry in found])
