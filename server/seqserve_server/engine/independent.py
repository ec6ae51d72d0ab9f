"""Rows that choose for themselves: the best word, or one drawn at random."""

from __future__ import annotations

import numpy as np

from seqserve_server.engine.choice import Choice, View
from seqserve_server.engine.constraints import Constraints
from seqserve_server.engine.limits import MOST_RANKS
from seqserve_server.engine.path import FinishedPaths, Path, Ranking, ranking_of
from seqserve_server.engine.request import DecodingOptions
from seqserve_server.engine.sampling import draw
from seqserve_server.engine.scores import Array, largest, log_softmax, penalized


class IndependentSearch:
    """One hypothesis a row; a row that has ended leaves, and the others go on."""

    def __init__(self, options: DecodingOptions, constraints: Constraints) -> None:
        """Begins with as many rows as hypotheses are wanted."""
        self._options = options
        self._constraints = constraints
        self.bans_some = constraints.bans_some
        self._paths = [Path() for _ in range(options.num_hypotheses)]
        self._finished = FinishedPaths(options)
        seed = options.sampling.seed if options.sampling else 0
        # Each hypothesis draws numbers of its own, so that no other row has a part in them.
        self._random = [np.random.default_rng([seed, number]) for number in range(options.rows)]
        sampling = options.sampling
        listed = max(options.return_top_tokens, sampling.top_k if sampling else 0)
        draws_among_all = sampling is not None and not 0 < sampling.top_k <= MOST_RANKS
        self.shows_scores = draws_among_all or options.repetition_penalty != 1.0
        self.ranked = 0 if self.shows_scores else listed

    def bans(self) -> list[list[int]]:
        """Lists for each row what it must not say next."""
        return [self._constraints.bans(path) for path in self._paths]

    def choose(self, view: View) -> Choice:
        """Lets each row go on by one word."""
        paths, random, parents = [], [], []
        for row, path in enumerate(self._extended(view)):
            end = self._constraints.end(path)
            if end:
                self._finished.add(path, end)
            else:
                paths.append(path)
                random.append(self._random[row])
                parents.append(row)
        self._paths, self._random = paths, random
        return Choice(
            parents, [path.word for path in paths], [] if paths else self._finished.best()
        )

    def _extended(self, view: View) -> list[Path]:
        # All rows are as long as each other.
        word = self._constraints.forced(self._paths[0].length)
        if word is not None:
            return [path.forced(word) for path in self._paths]
        if self.shows_scores:
            return [self._from_all(view, row) for row in range(len(self._paths))]
        return self._from_best(view)

    def _from_best(self, view: View) -> list[Path]:
        """Chooses among the best words, which the graph has found."""
        words, scores = view.best(self.ranked)  # [R, K]
        sampling, paths = self._options.sampling, []
        for row, path in enumerate(self._paths):
            word, score = view.word(row), view.log_probability(row)
            if sampling:
                place = draw(scores[row], sampling, self._random[row])
                word, score = int(words[row, place]), float(scores[row, place])
            paths.append(path.extended(word, score, self._ranking(words[row], scores[row])))
        return paths

    def _from_all(self, view: View, row: int) -> Path:
        """Chooses among all words."""
        path, options = self._paths[row], self._options
        scores = view.scores(row)
        if options.repetition_penalty != 1.0:
            scores = penalized(scores, path.words(), options.repetition_penalty)
        found = log_softmax(scores)
        if options.sampling:
            word = draw(scores, options.sampling, self._random[row])
        else:
            word = int(found.argmax())
        best = largest(found, options.return_top_tokens)
        return path.extended(word, float(found[word]), self._ranking(best, found[best]))

    def _ranking(self, words: Array, log_probabilities: Array) -> Ranking | None:
        return ranking_of(words, log_probabilities, self._options.return_top_tokens)
