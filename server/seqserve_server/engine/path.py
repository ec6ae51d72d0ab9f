"""A hypothesis under way: its words and what is known of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from seqserve_server.engine.constraints import End
from seqserve_server.engine.request import DecodingOptions, Hypothesis, StopReason
from seqserve_server.engine.scores import normalized

Ranking = list[tuple[int, float]]
"""Words of one step and their log-probabilities, best first."""


@dataclass(frozen=True, slots=True)
class Path:
    """Words from the begin token on, which is not among them. A path never changes."""

    words: list[int] = field(default_factory=list)
    score: float = 0.0
    """Sum of the log-probabilities of words that were not forced."""
    token_scores: list[float] = field(default_factory=list)
    rankings: list[Ranking] = field(default_factory=list)

    def forced(self, word: int) -> Path:
        """Goes on with a word of the prefix, which has no score."""
        return Path([*self.words, word], self.score, [*self.token_scores, math.nan], self.rankings)

    def extended(self, word: int, log_probability: float, ranking: Ranking) -> Path:
        """Goes on with a word that was chosen."""
        return Path(
            [*self.words, word],
            self.score + log_probability,
            [*self.token_scores, log_probability],
            [*self.rankings, ranking] if ranking else self.rankings,
        )

    def finished(self, end: End, options: DecodingOptions) -> Hypothesis:
        """Gives what it comes to.

        Args:
            end: Why, and what of it counts.
            options: What was asked for.
        """
        score = self.score if options.return_scores else None
        # The end token was chosen too, but not what comes after a stop sequence.
        chosen = end.kept + (end.reason is StopReason.EOS)
        forced = len(self.words) - len(self.rankings)
        return Hypothesis(
            token_ids=self.words[: end.kept],
            score=score,
            stop_reason=end.reason,
            normalized_score=normalized(score, len(self.words), options.length_penalty),
            token_scores=self.token_scores[:chosen] if options.return_token_scores else (),
            top_tokens=[[]] * forced + self.rankings[: chosen - forced]
            if options.return_top_tokens
            else (),
            text_length=end.text_length,
        )

    def rank(self, penalty: float) -> float:
        """Gives what finished hypotheses are ordered by."""
        return normalized(self.score, len(self.words), penalty)
