"""How beams go on, for many searches at once: arrays only, the rules are those of CTranslate2.

G searches keep B beams each, best first at every step.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from seqserve_server.engine.cache import MASKED_LOGIT
from seqserve_server.engine.packing import Array

# A word whose total is lower is forbidden, or what it would continue does not count.
_LEAST = float(MASKED_LOGIT) / 2


class Candidates(NamedTuple):
    """Continuations of the beams of each search, ``[G, N]`` each."""

    beams: Array
    """Which beam is continued."""
    words: Array
    """By what."""
    log_probabilities: Array
    """Of the word alone."""
    totals: Array
    """Sum of the log-probabilities of all words up to it."""

    def at(self, places: Array) -> Candidates:
        """Gives some of each search, ``[G, M]``."""
        return Candidates(*(_along(array, places) for array in self))

    def of(self, searches: Array | int) -> Candidates:
        """Gives all of some searches, or of one, without the first axis."""
        return Candidates(*(array[searches] for array in self))

    def put(self, search: int, others: Candidates) -> None:
        """Takes others in the place of those of a search.

        Args:
            search: Which one.
            others: No more than there were, ``[1, M]``; what is missing does not count.
        """
        self.totals[search] = -np.inf
        for array, other in zip(self, others, strict=True):
            array[search, : other.shape[1]] = other[0]


def _along(array: Array, places: Array) -> Array:
    """Gives values of each row ``[G, N]`` at its places ``[G, M]``; numpy's own takes 8 us more."""
    return array.reshape(-1).take(places + _begins(*array.shape))


@cache
def _begins(rows: int, length: int) -> Array:
    """Gives where each row begins in an array without gaps, ``[G, 1]``."""
    return np.arange(rows)[:, None] * length


@cache
def _earlier(beams: int) -> Array:
    """Tells of each pair of beams whether the second comes before the first, ``[B, B]``."""
    return np.tri(beams, k=-1, dtype=np.bool_)


def ranked(scores: Array, words: Array, log_probabilities: Array) -> Candidates:
    """Ranks the continuations of all beams; among equals the first comes first.

    Args:
        scores: Of the beams, ``[G, B]``.
        words: Best ones after each beam, ``[G, B, K]``.
        log_probabilities: Theirs.

    Returns:
        The best ``2 B`` of each search, or all where there are fewer. Their total is infinitely
        low where a word is forbidden: then they do not count.
    """
    groups, beams, words_each = words.shape
    totals = (scores[:, :, None] + log_probabilities).reshape(groups, -1)
    order = (-totals).argsort(axis=1, kind="stable")[:, : 2 * beams]
    places = order + _begins(*totals.shape)
    parts = (array.reshape(-1).take(places) for array in (words, log_probabilities, totals))
    found = Candidates(order // words_each, *parts)
    found.totals[found.totals < _LEAST] = -np.inf
    return found


def continued_by(scores: Array, word: int, log_probability: float) -> Candidates:
    """Continues all beams of one search by the same word, ``[1, B]``.

    Args:
        scores: Of the beams, ``[B]``.
        word: What they say.
        log_probability: Of that; not a number where it does not count.
    """
    found = np.full(len(scores), log_probability)
    totals = scores + np.nan_to_num(found)
    beams, words = np.arange(len(scores)), np.full(len(scores), word)
    return Candidates(beams[None], words[None], found[None], totals[None])


def succession(ends: Array, beams: int) -> Array:
    """Tells which candidates go on: the first ``beams``, those that end replaced by later ones.

    Args:
        ends: Whether each candidate is a whole hypothesis, ``[G, N]``, N at least ``beams``.
        beams: How many go on.

    Returns:
        A place among the candidates for each next beam, ``[G, B]``. Where too few are left that do
        not end, some that do stay.
    """
    places = np.arange(beams)[None].repeat(len(ends), axis=0)
    # Few searches have one that ends, as a rule.
    for search in np.flatnonzero(ends[:, :beams].any(axis=1)).tolist():
        found = ends[search].tolist()
        spares = (place for place in range(beams, len(found)) if not found[place])
        places[search] = [next(spares, at) if found[at] else at for at in range(beams)]
    return places


class Moves(NamedTuple):
    """Where the next beams go."""

    rows: Array
    """Of each next beam, ``[G, B]``."""
    sources: Array
    """Rows that are to be copied, ``[C]``."""
    targets: Array
    """Where to."""


def settled(rows: Array, beams: Array) -> Moves:
    """Gives each next beam a row: that of its parent where no earlier one has it.

    Args:
        rows: Of the beams, ``[G, B]``.
        beams: Parent of each next beam, ``[G, B]``.
    """
    copied = ((beams[:, :, None] == beams[:, None, :]) & _earlier(rows.shape[1])).any(axis=2)
    parents = _along(rows, beams)
    sources = parents[copied]
    if not len(sources):
        return Moves(parents, sources, sources)
    has_child = np.zeros(rows.size, np.bool_)
    has_child[beams + _begins(*rows.shape)] = True
    # A search has as many rows without a child as it has copies.
    targets = rows[~has_child.reshape(rows.shape)]
    parents[copied] = targets
    return Moves(parents, sources, targets)
