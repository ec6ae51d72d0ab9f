"""A hypothesis under way: its words and what is known of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from seqserve_server.engine.constraints import End
from seqserve_server.engine.request import DecodingOptions, Hypothesis, StopReason
from seqserve_server.engine.scores import Array, normalized

Ranking = list[tuple[int, float]]
"""Words of one step and their log-probabilities, best first."""


def ranking_of(words: Array, log_probabilities: Array, count: int) -> Ranking | None:
    """Gives the first ``count`` of words that are ranked already; None where none is wanted."""
    if not count:
        return None
    return list(zip(words[:count].tolist(), log_probabilities[:count].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Path:
    """A word and the path before it, which others may share; the begin token is not among them."""

    before: Path | None = None
    """None at the beginning, where there is no word."""
    word: int = -1
    length: int = 0
    """Words, a prefix counted."""
    score: float = 0.0
    """Sum of the log-probabilities of words that were not forced."""
    log_probability: float = math.nan
    """Of the word; not a number where it was forced."""
    ranking: Ranking | None = None
    """The best words of the step that chose the word, where they were asked for."""

    def forced(self, word: int) -> Path:
        """Goes on with a word of the prefix, which has no score."""
        return Path(self, word, self.length + 1, self.score)

    def extended(self, word: int, log_probability: float, ranking: Ranking | None = None) -> Path:
        """Goes on with a word that was chosen."""
        score = self.score + log_probability
        return Path(self, word, self.length + 1, score, log_probability, ranking)

    def words(self) -> list[int]:
        """Lists the words."""
        return [path.word for path in self._steps()]

    def finished(self, end: End, options: DecodingOptions) -> Hypothesis:
        """Gives what it comes to.

        Args:
            end: Why, and what of it counts.
            options: What was asked for.
        """
        steps = list(self._steps())
        # The end token was chosen too, but not what comes after a stop sequence.
        chosen = steps[: end.kept + (end.reason is StopReason.EOS)]
        score = self.score if options.return_scores else None
        scores = [path.log_probability for path in chosen]
        rankings = [path.ranking or [] for path in chosen]
        return Hypothesis(
            token_ids=[path.word for path in steps[: end.kept]],
            score=score,
            stop_reason=end.reason,
            normalized_score=normalized(score, self.length, options.length_penalty),
            token_scores=scores if options.return_token_scores else (),
            top_tokens=rankings if options.return_top_tokens else (),
            text_length=end.text_length,
        )

    def rank(self, penalty: float) -> float:
        """Gives what finished hypotheses are ordered by."""
        return normalized(self.score, self.length, penalty)

    def _steps(self) -> Iterator[Path]:
        """Gives the paths from the first word on."""
        steps = []
        path = self
        while path.before is not None:
            steps.append(path)
            path = path.before
        return reversed(steps)


class FinishedPaths:
    """The hypotheses of a request that have ended."""

    def __init__(self, options: DecodingOptions) -> None:
        """Begins with none."""
        self._options = options
        self._ranked: list[tuple[float, Hypothesis]] = []

    def __len__(self) -> int:
        """Counts them."""
        return len(self._ranked)

    def add(self, path: Path, end: End) -> None:
        """Takes one more."""
        rank = path.rank(self._options.length_penalty)
        self._ranked.append((rank, path.finished(end, self._options)))

    def best(self) -> list[Hypothesis]:
        """Gives as many as are wanted, best first; among equals the one that ended first."""
        ordered = sorted(self._ranked, key=lambda entry: -entry[0])
        return [hypothesis for _, hypothesis in ordered[: self._options.num_hypotheses]]
