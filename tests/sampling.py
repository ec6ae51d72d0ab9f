"""Samples one token, each option by its formula."""

from collections.abc import Callable

import numpy as np
from tests.reference_log_probs import Array

from seqserve_server.contract.options import Sampling


def sample(found: Array, sampling: Sampling, number: float, near: Callable[..., None]) -> int:
    """Finds the token on which a random number falls.

    Tokens follow each other in the order of the vocabulary, or by probability where top k or top p
    needs that order.

    Args:
        found: Log-probabilities of all tokens.
        sampling: The options.
        number: A random number in [0, 1).
        near: Called with the values that decide, and with the border between them.
    """
    is_ranked = sampling.top_k or sampling.top_p < 1
    order = np.argsort(-found, kind="stable") if is_ranked else np.arange(len(found))
    weights = np.exp((found[order] - found.max()) / sampling.temperature)
    weights[sampling.top_k or len(order) :] = 0
    if sampling.top_p < 1:
        before = (weights.cumsum() - weights) / weights.sum()
        near(before, sampling.top_p)
        weights[before >= sampling.top_p] = 0
    if sampling.min_p:
        near(weights, sampling.min_p)
        weights[weights < sampling.min_p] = 0
    cumulative = weights.cumsum() / weights.sum()
    near(cumulative, number)
    index = int((cumulative <= number).sum())
    if is_ranked:
        # Tokens of nearly the same probability may come in the other order.
        near(found[order[max(index - 1, 0) : index + 2]])
    return int(order[index])
