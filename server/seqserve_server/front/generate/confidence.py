"""Estimates how good an answer is, from what decoding knows of it anyway.

A logistic function of three features, fitted by ``python -m bench.confidence`` to the chrF of the
shipped model's translations: of sentences that it has not seen, of several of them in one text, and
of sentences in a language that it does not read. Other models keep the order of their answers, but
may be surer, or less sure, than they are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

INTERCEPT = -2.24
WEIGHTS = (4.18, -0.52, -0.82)
"""Of the features, in their order."""

# Longest sequence of tokens whose repetition is looked for.
_MAX_PERIOD = 8


def confidence(score: float, ids: Sequence[int], source_tokens: int, prefix: int = 0) -> float:
    """Estimates chrF / 100 of an answer.

    Args:
        score: The sum of the log-probabilities of its tokens, the end token among them.
        ids: Its tokens, without the end token.
        source_tokens: Number of tokens of the source, with the end token.
        prefix: How many tokens are forced, and have no part in the score.

    Returns:
        A number between 0 and 1.
    """
    values = features(score, ids, source_tokens, prefix)
    value = INTERCEPT + sum(w * x for w, x in zip(WEIGHTS, values, strict=True))
    return 1.0 / (1.0 + math.exp(-value))


def features(
    score: float, ids: Sequence[int], source_tokens: int, prefix: int = 0
) -> tuple[float, float, float]:
    """Computes what an estimate is made of.

    Returns:
        The geometric mean of the probabilities of the tokens; the absolute logarithm of the ratio
        of lengths, in tokens; the share of the tokens that belong to the longest repetition.
    """
    length = len(ids) + 1
    probability = math.exp(min(0.0, score / max(1, length - prefix)))
    return probability, abs(math.log(length / source_tokens)), _repeated(ids) / length


def _repeated(ids: Sequence[int]) -> int:
    """Counts the tokens of the longest run in which some tokens come again at once, and again."""
    if len(set(ids)) == len(ids):
        return 0
    longest = 0
    for period in range(1, min(_MAX_PERIOD, len(ids) // 2) + 1):
        run = 0
        for now, before in zip(ids[period:], ids, strict=False):
            run = run + 1 if now == before else 0
            if run >= period:
                longest = max(longest, run)
    return longest
