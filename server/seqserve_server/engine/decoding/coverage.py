"""Coverage: how much of the source a target has attended to.

Source: Wu et al. 2016, "Google's Neural Machine Translation System", section 7, formula 14.
"""

from __future__ import annotations

import numpy as np

from seqserve_server.contract.events import Hypothesis
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.decoding.hypotheses import rank_of
from seqserve_server.engine.packing import Array


def coverage(weights: Array) -> float:
    """Gives the sum of the logarithms of what each source word was attended to, at most 1 each.

    Args:
        weights: Attention of each target word to the source, ``[T, S]``.
    """
    attended = weights.sum(axis=0, dtype=np.float64)
    return float(np.log(np.minimum(attended[attended > 0], 1.0)).sum())


def covering(
    seen: list[tuple[Hypothesis, Array]], options: DecodingOptions
) -> list[tuple[Hypothesis, Array]]:
    """Ranks hypotheses anew, by what they cover too, and keeps as many as are wanted.

    Args:
        seen: All that have ended, with their scores, and the attention of each.
        options: What was asked for.
    """
    ranked = [
        (_covering(hypothesis, options.coverage_penalty * coverage(weights)), weights)
        for hypothesis, weights in seen
    ]
    ranked.sort(key=lambda pair: rank_of(pair[0], _rank(pair[0])))
    best = ranked[: options.num_hypotheses]
    return best if options.return_scores else [(_silent(each), weights) for each, weights in best]


def _covering(hypothesis: Hypothesis, gain: float) -> Hypothesis:
    return hypothesis._replace(normalized_score=_rank(hypothesis) + gain)


def _silent(hypothesis: Hypothesis) -> Hypothesis:
    return hypothesis._replace(score=None, normalized_score=None)


def _rank(hypothesis: Hypothesis) -> float:
    assert hypothesis.normalized_score is not None
    return hypothesis.normalized_score
