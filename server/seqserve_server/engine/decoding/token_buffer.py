"""What every row has said so far, as arrays over all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqserve_server.engine.decoding.hypotheses import PartialHypothesis
from seqserve_server.engine.decoding.logits import Ranking
from seqserve_server.engine.packing import Array


class TokenBuffer:
    """Words and their log-probabilities; rows move and branch as those of the cache."""

    def __init__(self, slots: int, longest: int) -> None:
        """Allocates room for the longest target in every slot.

        Args:
            slots: Most rows.
            longest: Most words, the end token counted.
        """
        self._words = np.zeros((slots, longest), np.int32)
        self._log_probabilities = np.zeros((slots, longest))
        self._rankings: dict[int, list[Ranking]] = {}

    def leave(self, row: int) -> None:
        """Empties a row."""
        self._rankings.pop(row, None)

    def branch(
        self, sources: Sequence[int] | Array, targets: Sequence[int] | Array, length: int
    ) -> None:
        """Copies rows over others.

        Args:
            sources: Rows, any of them more than once.
            targets: As many rows, none of them among the sources.
            length: Words that they have said, at most.
        """
        for array in (self._words, self._log_probabilities):
            array[targets, :length] = array[sources, :length]
        if self._rankings:
            for source, target in zip(sources, targets, strict=True):
                if source in self._rankings:
                    self._rankings[target] = self._rankings[source].copy()

    def say(self, rows: Array, length: Array | int, words: Array, log_probabilities: Array) -> None:
        """Lets rows say one more word each.

        Args:
            rows: Which, ``[R]``.
            length: How many words they have said with it, ``[R]`` or the same for all.
            words: What they say, ``[R]``.
            log_probabilities: Of that; not a number where it is forced.
        """
        self._words[rows, length - 1] = words
        self._log_probabilities[rows, length - 1] = log_probabilities

    def rank(self, row: int, ranking: Ranking) -> None:
        """Notes the best words of the step that chose a row's newest word."""
        self._rankings.setdefault(row, []).append(ranking)

    def said(self, row: int, length: int) -> list[int]:
        """Gives the first words of a row."""
        return self._words[row, :length].tolist()  # type: ignore[no-any-return]

    def partial(self, row: int, length: int, score: float = 0.0) -> PartialHypothesis:
        """Gives all that a row has said.

        Args:
            row: Which one.
            length: Words that it has said.
            score: Sum of their log-probabilities.
        """
        log_probabilities = self._log_probabilities[row, :length].tolist()
        rankings = self._rankings.get(row, [])
        return PartialHypothesis(self.said(row, length), log_probabilities, score, rankings)
