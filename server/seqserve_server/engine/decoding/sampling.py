"""Drawing words at random, for many rows at once.

Sources: Fan et al. 2018, "Hierarchical Neural Story Generation" (top k); Holtzman et al. 2020, "The
Curious Case of Neural Text Degeneration" (top p); Nguyen et al. 2024, "Turning Up the Heat: Min-p
Sampling" (min p).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqserve_server.contract.options import Sampling
from seqserve_server.engine.decoding.logits import largest
from seqserve_server.engine.packing import Array

_FEW = 128


class Samplings(NamedTuple):
    """How each row draws, ``[R]`` each; see :class:`Sampling`."""

    temperature: Array
    top_k: Array
    """No fewer than one: a large number where there is no bound."""
    top_p: Array
    min_p: Array

    @classmethod
    def empty(cls, rows: int) -> Samplings:
        """Makes room for so many rows."""
        return cls(np.ones(rows), np.ones(rows, np.int64), np.ones(rows), np.zeros(rows))

    def put(self, row: int, sampling: Sampling) -> None:
        """Says how a row draws."""
        self.temperature[row] = sampling.temperature
        self.top_k[row] = sampling.top_k or np.iinfo(np.int64).max
        self.top_p[row] = sampling.top_p
        self.min_p[row] = sampling.min_p

    def of(self, rows: Array) -> Samplings:
        """Gives those of some rows."""
        return Samplings(*(array[rows] for array in self))


def drawn(scores: Array, samplings: Samplings, numbers: Array) -> Array:
    """Draws a place in each row.

    Args:
        scores: Of words in the order of :func:`ordered`, ``[R, K]``; a number that is added to all
            of a row makes no difference.
        samplings: Which words stay, and how likely they are.
        numbers: What chance has to say, from 0 to 1, exclusive, ``[R]``.

    Returns:
        The place of the word on which each number falls, int64 ``[R]``.
    """
    upto = candidates(scores, samplings).cumsum(axis=1)
    # The best word is first, and so is taken if a number falls on none for want of precision.
    places: Array = (upto > (numbers * upto[:, -1])[:, None]).argmax(axis=1)
    return places


def candidates(scores: Array, samplings: Samplings) -> Array:
    """Gives the weight of each word, which is 0 where it does not stay, ``[R, K]``; see above."""
    temperature, top_k, top_p, min_p = (array[:, None] for array in samplings)
    scaled = (scores - scores[:, :1]).astype(np.float64) / temperature
    weights: Array = np.exp(scaled)
    if top_k.min() < weights.shape[1]:
        weights *= np.arange(weights.shape[1]) < top_k
    if top_p.min() < 1.0:
        upto = weights.cumsum(axis=1)
        # The word that completes the share stays too.
        enough = np.where(top_p < 1.0, top_p * upto[:, -1:], np.inf)
        weights[:, 1:] *= upto[:, :-1] < enough
    if min_p.max() > 0.0:
        # The most probable word has a weight of 1.
        weights *= weights >= min_p
    return weights


def ordered(scores: Array, sampling: Sampling) -> Array:
    """Orders the words of a row, ``[V]``, as far as drawing needs it.

    Returns:
        Places of those among which a word is drawn, the best one first; where ``top_k`` or
        ``top_p`` is to choose, those that stay come before the others, best first.
    """
    if sampling.top_k:
        return largest(scores, sampling.top_k)
    if sampling.top_p == 1.0:
        return _followed(largest(scores, 1), len(scores))
    # Few words have nearly all of the probability, as a rule; to sort the others would be in vain.
    weights = np.exp((scores - scores.max()).astype(np.float64) / sampling.temperature)
    best = largest(weights, _FEW)
    if weights[best].sum() < sampling.top_p * weights.sum():
        return largest(weights, len(weights))
    return _followed(best, len(weights))


def _followed(places: Array, count: int) -> Array:
    """Lets all other places up to ``count`` follow some."""
    rest = np.ones(count, np.bool_)
    rest[places] = False
    return np.concatenate([places, np.flatnonzero(rest)])
