"""One step of beam search, for many searches at once: arrays only, the rules are CTranslate2's.

G searches keep B beams each, best first at every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT

# A lower total means that a token is suppressed, or that the beam it continues does not count.
_MIN_TOTAL = float(MASKED_LOGIT) / 2


class Continuations(NamedTuple):
    """Continuations of the beams of each search, ``[G, N]`` each."""

    beams: Array
    tokens: Array
    log_probabilities: Array
    """Log-probability of only that token."""
    totals: Array
    """Sum of the log-probabilities of all tokens up to it."""

    def at(self, columns: Array) -> Continuations:
        """Returns some of each search, ``[G, M]``."""
        return Continuations(*(_take(array, columns) for array in self))

    def of(self, searches: Array | int) -> Continuations:
        """Returns all of some searches, or of one, without the first axis."""
        return Continuations(*(array[searches] for array in self))

    def first(self, count: int) -> Continuations:
        """Returns the first of each search, ``[G, count]``."""
        return Continuations(*(array[:, :count] for array in self))

    def put(self, search: int, others: Continuations) -> None:
        """Replaces the continuations of a search by as many, ``[1, M]``, or fewer."""
        self.totals[search] = -np.inf
        for array, other in zip(self, others, strict=True):
            array[search, : other.shape[1]] = other[0]


def _take(array: Array, columns: Array) -> Array:
    """Takes columns ``[G, M]`` of each row ``[G, N]``; ``np.take_along_axis`` needs 8 us more."""
    return array.reshape(-1).take(columns + _row_starts(*array.shape))


@cache
def _row_starts(rows: int, length: int) -> Array:
    """Returns the index of each row's first element in the flat array, ``[G, 1]``."""
    return np.arange(rows)[:, None] * length


@cache
def _is_earlier(beams: int) -> Array:
    """Returns for each pair of beams whether the second comes before the first, ``[B, B]``."""
    return np.tri(beams, k=-1, dtype=np.bool_)


def rank(scores: Array, tokens: Array, log_probabilities: Array) -> Continuations:
    """Ranks the continuations of beams with scores ``[G, B]`` by their top tokens ``[G, B, K]``.

    Returns the best ``2 B`` of each search, among equals the first. The total of a suppressed token
    is minus infinity.
    """
    groups, beams, width = tokens.shape
    totals = (scores[:, :, None] + log_probabilities).reshape(groups, -1)
    order = (-totals).argsort(axis=1, kind="stable")[:, : 2 * beams]
    flat = order + _row_starts(*totals.shape)
    parts = (array.reshape(-1).take(flat) for array in (tokens, log_probabilities, totals))
    best = Continuations(order // width, *parts)
    best.totals[best.totals < _MIN_TOTAL] = -np.inf
    return best


def continue_with(scores: Array, token: int, log_probability: float) -> Continuations:
    """Continues all beams of one search, with scores ``[B]``, with the same token, ``[1, B]``."""
    log_probabilities = np.full(len(scores), log_probability)
    totals = scores + np.nan_to_num(log_probabilities)
    beams, tokens = np.arange(len(scores)), np.full(len(scores), token)
    return Continuations(beams[None], tokens[None], log_probabilities[None], totals[None])


def select_next(is_end: Array, ending: Iterable[int], beams: int) -> Array:
    """Selects the columns ``[G, B]`` that go on: the first ones, ended ones replaced by later ones.

    ``is_end`` is ``[G, N]``, N at least ``beams``; ``ending`` are the searches with an end among
    their first ``beams``. If fewer than ``beams`` do not end, some ended ones stay.
    """
    columns = np.arange(beams)[None].repeat(len(is_end), axis=0)
    for search in ending:
        ends = is_end[search].tolist()
        spares = (column for column in range(beams, len(ends)) if not ends[column])
        columns[search] = [next(spares, at) if ends[at] else at for at in range(beams)]
    return columns


class BeamReorder(NamedTuple):
    """Where the next beams live."""

    rows: Array
    """Row of each next beam, ``[G, B]``."""
    sources: Array
    """Rows to copy, ``[C]``."""
    targets: Array
    """Rows to copy them to, ``[C]``."""


def reorder(rows: Array, beams: Array) -> BeamReorder:
    """Assigns a row to each next beam; the first child keeps the row of its parent, ``[G, B]``."""
    same_parent = beams[:, :, None] == beams[:, None, :]
    is_copy = (same_parent & _is_earlier(rows.shape[1])).any(axis=2)
    parents = _take(rows, beams)
    sources = parents[is_copy]
    if not len(sources):
        return BeamReorder(parents, sources, sources)
    has_child = np.zeros(rows.size, np.bool_)
    has_child[beams + _row_starts(*rows.shape)] = True
    # A search has as many rows without a child as it has copies.
    targets = rows[~has_child.reshape(rows.shape)]
    parents[is_copy] = targets
    return BeamReorder(parents, sources, targets)
