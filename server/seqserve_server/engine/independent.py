"""Rows that choose for themselves: the best word, or one drawn at random."""

from __future__ import annotations

import numpy as np

from seqserve_server.engine.choice import Choice, View
from seqserve_server.engine.constraints import Constraints
from seqserve_server.engine.path import Path, Ranking
from seqserve_server.engine.request import DecodingOptions, Hypothesis
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
        self._finished: list[tuple[float, Hypothesis]] = []
        seed = options.sampling.seed if options.sampling else 0
        # Each hypothesis draws numbers of its own, so that no other row has a part in them.
        self._random = [np.random.default_rng([seed, number]) for number in range(options.rows)]
        self.shows_scores = options.sampling is not None or options.repetition_penalty != 1.0
        self.ranked = 0 if self.shows_scores else options.return_top_tokens

    def bans(self) -> list[list[int]]:
        """Lists for each row what it must not say next."""
        return [self._constraints.bans(path.words) for path in self._paths]

    def choose(self, view: View) -> Choice:
        """Lets each row go on by one word."""
        paths, random, parents = [], [], []
        for row, path in enumerate(self._paths):
            longer = self._extended(view, row, path)
            end = self._constraints.end(longer.words)
            if end:
                rank = longer.rank(self._options.length_penalty)
                self._finished.append((rank, longer.finished(end, self._options)))
            else:
                paths.append(longer)
                random.append(self._random[row])
                parents.append(row)
        self._paths, self._random = paths, random
        return Choice(parents, [path.words[-1] for path in paths], [] if paths else self._best())

    def _best(self) -> list[Hypothesis]:
        ordered = sorted(self._finished, key=lambda entry: -entry[0])
        return [hypothesis for _, hypothesis in ordered]

    def _extended(self, view: View, row: int, path: Path) -> Path:
        word = self._constraints.forced(len(path.words))
        if word is not None:
            return path.forced(word)
        if not self.shows_scores:
            return path.extended(view.word(row), view.log_probability(row), self._listed(view, row))
        scores = view.scores(row)
        if self._options.repetition_penalty != 1.0:
            scores = penalized(scores, path.words, self._options.repetition_penalty)
        found = log_softmax(scores)
        sampling = self._options.sampling
        word = draw(scores, sampling, self._random[row]) if sampling else int(found.argmax())
        best = largest(found, self._options.return_top_tokens)
        return path.extended(word, float(found[word]), _ranking(best, found[best]))

    def _listed(self, view: View, row: int) -> Ranking:
        count = self._options.return_top_tokens
        if not count:
            return []
        words, found = view.best(count)
        return _ranking(words[row], found[row])


def _ranking(words: Array, log_probabilities: Array) -> Ranking:
    return list(zip(words.tolist(), log_probabilities.tolist(), strict=True))
