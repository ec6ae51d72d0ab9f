"""A model that is a table of probabilities, and a search stepped over it by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqserve_server.engine.beam import BeamSearch, ranked
from seqserve_server.engine.choice import Candidate, Choice
from seqserve_server.engine.constraints import Constraints
from seqserve_server.engine.independent import IndependentSearch
from seqserve_server.engine.request import DecodingOptions, Hypothesis

Array = NDArray[Any]

EOS, WORDS = 0, 8
LEAST = 1e-9
"""Probability of a word that the table does not name; they do not quite sum to 1 then."""

Table = Callable[[tuple[int, ...]], Mapping[int, float]]
"""Gives the probabilities of the words that come after some."""


def spelt(words: Sequence[int]) -> str:
    """Writes word 1 as ``a``, word 2 as ``bb``, word 3 as ``ccc``."""
    return "".join("_abcdefg"[word] * word for word in words)


def scores_after(table: Table, words: tuple[int, ...], banned: Sequence[int] = ()) -> Array:
    """Gives what a graph would: logarithms, those of banned words lowered beyond reach."""
    scores = np.full(WORDS, math.log(LEAST))
    for word, probability in table(words).items():
        scores[word] = math.log(probability)
    scores[list(banned)] -= 1e30
    return scores


class TableView:
    """What a search sees of a step."""

    def __init__(self, scores: list[Array]) -> None:
        self.candidates: list[Candidate] | None = None
        self._scores = scores
        self._found = [row - np.logaddexp.reduce(row) for row in scores]

    def word(self, row: int) -> int:
        return int(self._found[row].argmax())

    def log_probability(self, row: int) -> float:
        return float(self._found[row].max())

    def best(self, count: int) -> tuple[Array, Array]:
        words = np.stack([np.argsort(-row, kind="stable")[:count] for row in self._found])
        return words, np.stack([row[these] for row, these in zip(self._found, words, strict=True)])

    def scores(self, row: int) -> Array:
        return self._scores[row]


class Steps:
    """One request's search, whose rows say what it tells them to."""

    def __init__(self, table: Table, **options: Any) -> None:
        self.options = DecodingOptions(**{"max_decoding_length": 9} | options)
        kind = BeamSearch if self.options.beam_size > 1 else IndependentSearch
        self.search = kind(self.options, Constraints(self.options, EOS, spelt))
        self.rows: list[tuple[int, ...]] = [()] * self.options.rows
        self.table = table
        self.taken = 0

    def step(self) -> Choice:
        bans = self.search.bans() if self.search.bans_some else [[] for _ in self.rows]
        scores = [
            scores_after(self.table, words, banned)
            for words, banned in zip(self.rows, bans, strict=True)
        ]
        view = TableView(scores)
        if isinstance(self.search, BeamSearch) and self.search.ranked == 2 * self.search.size:
            # As the search of all rows does, where beams need nothing else.
            words, found = view.best(self.search.ranked)
            [view.candidates] = ranked([self.search.scores], words[None], found[None])
        choice: Choice = self.search.choose(view)  # type: ignore[arg-type]
        said = zip(choice.parents, choice.words, strict=True)
        self.rows = [(*self.rows[parent], word) for parent, word in said]
        self.taken += 1
        return choice

    def finish(self) -> list[Hypothesis]:
        """Steps to the end; there is an answer exactly when no row goes on."""
        while True:
            choice = self.step()
            assert bool(choice.finished) == (not choice.words)
            if choice.finished:
                return choice.finished


def always(probabilities: Mapping[int, float]) -> Table:
    """Makes a table in which nothing depends on what was said."""
    return lambda words: probabilities


def after(tree: Mapping[tuple[int, ...], Mapping[int, float]]) -> Table:
    """Makes a table of some beginnings; everything else ends at once."""
    return lambda words: tree.get(words, {EOS: 1.0})
