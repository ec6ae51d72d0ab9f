"""Arithmetic on logits and on scores."""

import numpy as np

from seqserve_server.engine.packing import Array

TokenLogprobs = list[tuple[int, float]]
"""Tokens of one step and their log-probabilities, best first."""


def log_softmax(logits: Array) -> Array:
    """Returns the log-probabilities of logits, ``[V]`` → float64 ``[V]``."""
    shifted: Array = logits.astype(np.float64) - logits.max()
    shifted -= np.log(np.exp(shifted).sum())
    return shifted


def largest(values: Array, count: int) -> Array:
    """Finds the indices of the largest of ``values [V]``, largest first; among equals the first."""
    count = min(count, len(values))
    if not count:
        return np.empty(0, np.int64)
    indices = np.argpartition(values, len(values) - count)[len(values) - count :]
    # All that equal the least of them, so that the choice among equals does not depend on chance.
    indices = np.flatnonzero(values >= values[indices].min())
    return indices[np.argsort(-values[indices], kind="stable")][:count]


def normalized(score: float, length: int, penalty: float) -> float:
    """Divides a score by the length to the power of the penalty, as CTranslate2 does.

    The length counts the prefix and the end token.
    """
    return float(score / max(length, 1) ** penalty)
