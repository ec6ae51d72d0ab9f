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
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seqserve_server.engine.choice import Choice, View
from seqserve_server.engine.constraints import Constraints
from seqserve_server.engine.path import Path, Ranking
from seqserve_server.engine.request import DecodingOptions, Hypothesis
from seqserve_server.engine.scores import Array, largest, log_softmax, penalized


class _Candidate(NamedTuple):
    """A continuation of a beam."""

    beam: int
    word: int
    log_probability: float


class BeamSearch:
    """Keeps ``beam_size`` hypotheses."""

    def __init__(self, options: DecodingOptions, constraints: Constraints) -> None:
        """Begins with rows that are all alike, of which only the first one counts."""
        self._options = options
        self._constraints = constraints
        self.bans_some = constraints.bans_some
        self._size = options.beam_size
        self._paths = [Path(score=0.0 if beam == 0 else -math.inf) for beam in range(self._size)]
        self._finished: list[tuple[float, Hypothesis]] = []
        self._enough = round(self._size * options.patience)
        # Without a penalty no later hypothesis can be better than a beam that ends on top.
        self._ends_early = (options.patience, options.length_penalty, options.num_hypotheses) == (
            1.0,
            0.0,
            1,
        )
        self.shows_scores = options.repetition_penalty != 1.0
        self.ranked = 0 if self.shows_scores else max(2 * self._size, options.return_top_tokens)

    def bans(self) -> list[list[int]]:
        """Lists for each beam what it must not say next."""
        return [self._constraints.bans(path.words) for path in self._paths]

    def choose(self, view: View) -> Choice:
        """Ranks the continuations of all beams."""
        word = self._constraints.forced(len(self._paths[0].words))
        if word is not None:
            self._paths = [path.forced(word) for path in self._paths]
            return Choice(list(range(self._size)), [word] * self._size, [])
        ranking = self._ranking(view)
        paths, parents, is_over = self._next(self._ranked(*ranking), ranking)
        if is_over:
            return Choice([], [], self._best())
        self._paths = paths
        return Choice(parents, [path.words[-1] for path in paths], [])

    def _ranking(self, view: View) -> tuple[Array, Array]:
        """Gives the best words after each beam and their log-probabilities, ``[B, K]``."""
        if not self.shows_scores:
            return view.best(self.ranked)
        count = max(2 * self._size, self._options.return_top_tokens)
        found = [
            log_softmax(penalized(view.scores(beam), path.words, self._options.repetition_penalty))
            for beam, path in enumerate(self._paths)
        ]
        words = [largest(row, count) for row in found]
        best = [row[these] for row, these in zip(found, words, strict=True)]
        return np.stack(words), np.stack(best)

    def _ranked(self, words: Array, log_probabilities: Array) -> list[_Candidate]:
        """Ranks the continuations of all beams; among equals the first beam comes first."""
        scores = np.array([[path.score] for path in self._paths])
        order = np.argsort(-(scores + log_probabilities), axis=None, kind="stable")
        order = order[: 2 * self._size]
        beams = (order // words.shape[1]).tolist()
        chosen = words.ravel()[order].tolist()
        found = log_probabilities.ravel()[order].tolist()
        return list(map(_Candidate, beams, chosen, found))

    def _next(
        self, candidates: list[_Candidate], ranking: tuple[Array, Array]
    ) -> tuple[list[Path], list[int], bool]:
        """Sorts out what ends from what goes on."""
        spare = self._going_on(candidates[self._size :], ranking)
        paths, parents = [], []
        top_ended = is_last = False
        for place, candidate in enumerate(candidates[: self._size]):
            path = self._extended(candidate, ranking)
            end = self._constraints.end(path.words)
            if end:
                rank = path.rank(self._options.length_penalty)
                self._finished.append((rank, path.finished(end, self._options)))
                top_ended |= place == 0
                is_last |= len(path.words) >= self._options.max_decoding_length
                candidate, path = next(spare, (candidate, path))
            parents.append(candidate.beam)
            paths.append(path)
        count = len(self._finished)
        is_over = top_ended if self._ends_early else count >= self._enough
        return paths, parents, is_over or is_last

    def _going_on(
        self, candidates: list[_Candidate], ranking: tuple[Array, Array]
    ) -> Iterator[tuple[_Candidate, Path]]:
        for candidate in candidates:
            path = self._extended(candidate, ranking)
            if self._constraints.end(path.words) is None:
                yield candidate, path

    def _extended(self, candidate: _Candidate, ranking: tuple[Array, Array]) -> Path:
        path = self._paths[candidate.beam]
        return path.extended(
            candidate.word, candidate.log_probability, self._listed(ranking, candidate.beam)
        )

    def _listed(self, ranking: tuple[Array, Array], beam: int) -> Ranking:
        count = self._options.return_top_tokens
        if not count:
            return []
        words, found = (part[beam, :count].tolist() for part in ranking)
        return list(zip(words, found, strict=True))

    def _best(self) -> list[Hypothesis]:
        ordered = sorted(self._finished, key=lambda entry: -entry[0])
        return [hypothesis for _, hypothesis in ordered[: self._options.num_hypotheses]]
