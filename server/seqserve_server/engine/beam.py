"""Beam search of one request, step by step, with the rules of CTranslate2.

At each step the best ``2 beam_size`` continuations of all beams are ranked by the sum of their
log-probabilities. One of the first ``beam_size`` that ends is a finished hypothesis, and the next
continuation that does not end takes its place. Search is over when ``beam_size * patience``
hypotheses are finished; they are ranked by their normalised scores.

Sources: Sutskever et al. 2014, section 3.2; Wu et al. 2016, section 7; Kasai et al. 2022, "A Call
for Clarity in Beam Search" (patience); CTranslate2, docs/decoding.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from seqserve_server.engine.choice import Candidate, Choice, View
from seqserve_server.engine.constraints import Constraints
from seqserve_server.engine.path import FinishedPaths, Path, Ranking, ranking_of
from seqserve_server.engine.request import DecodingOptions
from seqserve_server.engine.scores import Array, largest, log_softmax, penalized


class BeamSearch:
    """Keeps ``beam_size`` hypotheses."""

    def __init__(self, options: DecodingOptions, constraints: Constraints) -> None:
        """Begins with rows that are all alike, of which only the first one counts."""
        self._options = options
        self._constraints = constraints
        self.bans_some = constraints.bans_some
        self.size = options.beam_size
        self._paths = [Path(score=0.0 if beam == 0 else -math.inf) for beam in range(self.size)]
        self._finished = FinishedPaths(options)
        self._enough = max(1, math.floor(self.size * options.patience + 0.5))
        # Without a penalty no later hypothesis can be better than the one that ends on top.
        self._ends_early = options.patience == 1.0 and options.length_penalty == 0.0
        self._top_ended = False
        self.shows_scores = options.repetition_penalty != 1.0
        self.ranked = 0 if self.shows_scores else max(2 * self.size, options.return_top_tokens)

    @property
    def scores(self) -> list[float]:
        """Gives the score of each beam."""
        return [path.score for path in self._paths]

    def bans(self) -> list[list[int]]:
        """Lists for each beam what it must not say next."""
        return [self._constraints.bans(path) for path in self._paths]

    def choose(self, view: View) -> Choice:
        """Ranks the continuations of all beams, and sorts out what ends from what goes on."""
        word = self._constraints.forced(self._paths[0].length)
        if word is not None:
            self._paths = [path.forced(word) for path in self._paths]
            return Choice(list(range(self.size)), [word] * self.size, [])
        candidates, ranking = view.candidates, None
        if candidates is None or self._options.return_top_tokens:
            ranking = self._ranking(view)
        if candidates is None:
            assert ranking is not None
            [candidates] = ranked([self.scores], *(part[None] for part in ranking))
        paths, parents = self._next(candidates, ranking)
        if not paths:
            return Choice([], [], self._finished.best())
        self._paths = paths
        return Choice(parents, [path.word for path in paths], [])

    def _ranking(self, view: View) -> tuple[Array, Array]:
        """Gives the best words after each beam and their log-probabilities, ``[B, K]``."""
        if not self.shows_scores:
            return view.best(self.ranked)
        count = max(2 * self.size, self._options.return_top_tokens)
        found = [
            log_softmax(penalized(view.scores(beam), path.words(), self._penalty))
            for beam, path in enumerate(self._paths)
        ]
        words = [largest(row, count) for row in found]
        best = [row[these] for row, these in zip(found, words, strict=True)]
        return np.stack(words), np.stack(best)

    @property
    def _penalty(self) -> float:
        return self._options.repetition_penalty

    def _next(
        self, candidates: list[Candidate], ranking: tuple[Array, Array] | None
    ) -> tuple[list[Path], list[int]]:
        """Gives the next beams and those that they come from; none where search is over."""
        spare = self._going_on(candidates[self.size :], ranking)
        paths, parents = [], []
        is_last = False
        for place, candidate in enumerate(candidates[: self.size]):
            path = self._extended(candidate, ranking)
            end = self._constraints.end(path)
            if end:
                self._finished.add(path, end)
                self._top_ended |= place == 0
                is_last |= path.length >= self._options.max_decoding_length
                candidate, path = next(spare, (candidate, path))
            parents.append(candidate.beam)
            paths.append(path)
        return ([], []) if is_last or self._is_over() else (paths, parents)

    def _is_over(self) -> bool:
        count = len(self._finished)
        if self._ends_early:
            return self._top_ended and count >= self._options.num_hypotheses
        return count >= self._enough

    def _going_on(
        self, candidates: list[Candidate], ranking: tuple[Array, Array] | None
    ) -> Iterator[tuple[Candidate, Path]]:
        for candidate in candidates:
            path = self._extended(candidate, ranking)
            if self._constraints.end(path) is None:
                yield candidate, path

    def _extended(self, candidate: Candidate, ranking: tuple[Array, Array] | None) -> Path:
        beam, word, log_probability = candidate
        return self._paths[beam].extended(word, log_probability, self._listed(ranking, beam))

    def _listed(self, ranking: tuple[Array, Array] | None, beam: int) -> Ranking | None:
        if ranking is None:
            return None
        words, found = ranking
        return ranking_of(words[beam], found[beam], self._options.return_top_tokens)


def ranked(
    scores: Sequence[list[float]], words: Array, log_probabilities: Array
) -> list[list[Candidate]]:
    """Ranks the continuations of all beams of several requests; among equals the first comes first.

    Args:
        scores: Of the beams of each request, ``[G, B]``.
        words: Best ones after each beam, ``[G, B, K]``, K at least 2 B where there are so many.
        log_probabilities: Theirs.

    Returns:
        The best ``2 B`` of each request.
    """
    groups, beams, words_each = words.shape
    totals = np.array(scores)[:, :, None] + log_probabilities
    order = np.argsort(-totals.reshape(groups, -1), axis=1, kind="stable")[:, : 2 * beams]
    chosen = np.take_along_axis(words.reshape(groups, -1), order, 1).tolist()
    found = np.take_along_axis(log_probabilities.reshape(groups, -1), order, 1).tolist()
    parents = (order // words_each).tolist()
    return [list(map(Candidate, *each)) for each in zip(parents, chosen, found, strict=True)]
