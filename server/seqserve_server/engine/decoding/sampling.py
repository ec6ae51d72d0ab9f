"""Samples tokens for many rows at once.

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

# So many top tokens hold nearly all of the probability, as a rule.
_NUM_LIKELY = 128

# Weights that are added up before any of them is looked at.
_BLOCK = 128


class SamplingParams(NamedTuple):
    """How each row samples, ``[R]`` each; see :class:`Sampling`."""

    temperature: Array
    top_k: Array
    """At least one; a large number without a bound."""
    top_p: Array
    min_p: Array

    @classmethod
    def empty(cls, rows: int) -> SamplingParams:
        """Allocates room for ``rows`` rows."""
        return cls(np.ones(rows), np.ones(rows, np.int64), np.ones(rows), np.zeros(rows))

    def put(self, row: int, sampling: Sampling) -> None:
        """Sets how a row samples."""
        self.temperature[row] = sampling.temperature
        self.top_k[row] = sampling.top_k or np.iinfo(np.int64).max
        self.top_p[row] = sampling.top_p
        self.min_p[row] = sampling.min_p

    def of(self, rows: Array) -> SamplingParams:
        """Returns the options of some rows."""
        return SamplingParams(*(array[rows] for array in self))


def sample(log_probabilities: Array, params: SamplingParams, random: Array) -> Array:
    """Samples a column of each row, int64 ``[R]``, by random numbers in [0, 1).

    The log-probabilities ``[R, K]`` are in the order of :func:`sorted_for_sampling`.
    """
    cumulative = weights_of(log_probabilities, params).cumsum(axis=1)
    # The best token comes first, and is taken where rounding leaves a number on none.
    columns: Array = (cumulative > (random * cumulative[:, -1])[:, None]).argmax(axis=1)
    return columns


def sample_all(values: Array, params: SamplingParams, random: Array) -> tuple[Array, Array]:
    """Samples a column of each row where neither ``top_k`` nor ``top_p`` excludes any.

    ``values`` are logits or log-probabilities ``[R, N]``. Sums of blocks locate the block of a
    random number, and only the weights of that block are added up one by one. Returns the column,
    and how far its value is below the highest one, ``[R]`` each.
    """
    rows, width = np.arange(len(values)), values.shape[1]
    below = values.max(axis=1, keepdims=True) - values
    min_p = params.min_p[:, None]
    with np.errstate(over="ignore"):  # at temperatures near zero all weights but one are zero
        weights = np.exp(below / -params.temperature[:, None].astype(values.dtype))
    if min_p.max() > 0.0:
        weights *= weights >= min_p
    sums = np.add.reduceat(weights, np.arange(0, width, _BLOCK), axis=1)
    totals = sums.cumsum(axis=1, dtype=np.float64)  # up to each block
    numbers = random * totals[:, -1]
    blocks = _falls_on(totals, numbers)
    numbers -= np.where(blocks > 0, totals[rows, blocks - 1], 0.0)
    columns = np.minimum(blocks[:, None] * _BLOCK + np.arange(_BLOCK), width - 1)
    within = weights[rows[:, None], columns].cumsum(axis=1, dtype=np.float64)
    chosen = columns[rows, _falls_on(within, numbers)]
    return chosen, below[rows, chosen]


def _falls_on(cumulative: Array, numbers: Array) -> Array:
    """Finds the first column of each row whose sum exceeds a number; the last one, if none does."""
    numbers = np.minimum(numbers, np.nextafter(cumulative[:, -1], 0.0))
    columns: Array = (cumulative > numbers[:, None]).argmax(axis=1)
    return columns


def weights_of(log_probabilities: Array, params: SamplingParams) -> Array:
    """Returns the weight of each token, 0 where it is left out, ``[R, K]``, see :func:`sample`."""
    temperature, top_k, top_p, min_p = (array[:, None] for array in params)
    shifted = (log_probabilities - log_probabilities[:, :1]).astype(np.float64)
    weights: Array = np.exp(shifted / temperature)
    if top_k.min() < weights.shape[1]:
        weights *= np.arange(weights.shape[1]) < top_k
    if top_p.min() < 1.0:
        cumulative = weights.cumsum(axis=1)
        # The token that completes the share stays too.
        enough = np.where(top_p < 1.0, top_p * cumulative[:, -1:], np.inf)
        weights[:, 1:] *= cumulative[:, :-1] < enough
    if min_p.max() > 0.0:
        # The most probable token has a weight of 1.
        weights *= weights >= min_p
    return weights


def sorted_for_sampling(log_probabilities: Array, sampling: Sampling) -> Array:
    """Sorts the tokens of a row, ``[V]``, as far as ``top_k`` or ``top_p`` needs it; best first."""
    if sampling.top_k:
        return largest(log_probabilities, sampling.top_k)
    shifted = (log_probabilities - log_probabilities.max()).astype(np.float64)
    weights = np.exp(shifted / sampling.temperature)
    # To sort all of them would mostly be in vain.
    likely = largest(weights, _NUM_LIKELY)
    if weights[likely].sum() < sampling.top_p * weights.sum():
        return largest(weights, len(weights))
    is_rest = np.ones(len(weights), np.bool_)
    is_rest[likely] = False
    return np.concatenate([likely, np.flatnonzero(is_rest)])
