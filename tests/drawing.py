"""A word drawn at random, each option from its formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.reading import Array

from seqserve_server.contract.options import Sampling


def drawn(found: Array, sampling: Sampling, number: float, near: Callable[..., None]) -> int:
    """Finds the word on which a number from 0 to 1 falls, with all words laid in a row.

    The best one is first; the others are as in the vocabulary, unless their order matters. What
    decides is told, and how near it was.
    """
    order, is_ranked = np.argsort(-found, kind="stable"), sampling.top_k or sampling.top_p < 1
    near(found[order[:2]])
    if not is_ranked:
        order[1:].sort()
    weights = np.exp((found[order] - found.max()) / sampling.temperature)
    weights[sampling.top_k or len(order) :] = 0
    if sampling.top_p < 1:
        before = (weights.cumsum() - weights) / weights.sum()
        near(before, sampling.top_p)
        weights[before >= sampling.top_p] = 0
    if sampling.min_p:
        near(weights, sampling.min_p)
        weights[weights < sampling.min_p] = 0
    upto = weights.cumsum() / weights.sum()
    near(upto, number)
    place = int((upto <= number).sum())
    if is_ranked:
        # Words that are nearly alike may lie the other way round.
        near(found[order[max(place - 1, 0) : place + 2]])
    return int(order[place])
