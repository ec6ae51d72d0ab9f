"""Scores of words and of hypotheses: what is made of a row of logits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

import numpy as np

from seqserve_server.engine.packing import Array

Ranking = list[tuple[int, float]]
"""Words of one step and their log-probabilities, best first."""


def log_softmax(scores: Array) -> Array:
    """Gives the log-probabilities of scores, ``[V]`` → float64 ``[V]``."""
    shifted: Array = scores.astype(np.float64) - scores.max()
    shifted -= np.log(np.exp(shifted).sum())
    return shifted


def penalized(scores: Array, words: Iterable[int], penalty: float) -> Array:
    """Makes words less likely that were said already, ``[V]`` → ``[V]``.

    Their scores are divided by the penalty where they are positive, multiplied where they are not.
    Source: Keskar et al. 2019, "CTRL", section 4.1; for negative scores as in CTranslate2 and
    Hugging Face's transformers.
    """
    said = np.fromiter(set(words), np.int64)
    changed = scores.copy()
    found = changed[said]
    changed[said] = np.where(found < 0, found * penalty, found / penalty)
    return changed


def largest(values: Array, count: int) -> Array:
    """Finds where the largest of ``values [V]`` are, largest first; among equals the first."""
    count = min(count, len(values))
    if not count:
        return np.empty(0, np.int64)
    found = np.argpartition(values, len(values) - count)[len(values) - count :]
    # All that equal the least of them, so that which are found does not depend on chance.
    found = np.flatnonzero(values >= values[found].min())
    return found[np.argsort(-values[found], kind="stable")][:count]


@overload
def normalized(score: None, length: int, penalty: float) -> None: ...


@overload
def normalized(score: float, length: int, penalty: float) -> float: ...


@overload
def normalized(score: float | None, length: int, penalty: float) -> float | None: ...


def normalized(score: float | None, length: int, penalty: float) -> float | None:
    """Divides a score by the length to the power of the penalty, as CTranslate2 does.

    Args:
        score: Sum of log-probabilities.
        length: Tokens of the hypothesis, a prefix and the end token counted.
        penalty: 0 leaves the score as it is.
    """
    if score is None:
        return None
    return float(score / max(length, 1) ** penalty)
