"""Coverage penalty: prefers hypotheses that attended to more of the source.

Source: Wu et al. 2016, "Google's Neural Machine Translation System", section 7, formula 14.
"""

from __future__ import annotations

import numpy as np

from seqserve_server.contract.events import Hypothesis
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.decoding.hypotheses import rank_of
from seqserve_server.engine.packing import Array

Attended = tuple[Hypothesis, Array]
"""A finished hypothesis and its attention to the source, ``[T, S]``."""


def coverage(weights: Array) -> float:
    """Sums the logarithms of the attention that each source token got, at most 1 each.

    Args:
        weights: Attention of each target token to the source, ``[T, S]``.
    """
    attention = weights.sum(axis=0, dtype=np.float64)
    return float(np.log(np.minimum(attention[attention > 0], 1.0)).sum())


def ranked_by_coverage(finished: list[Attended], options: DecodingOptions) -> list[Attended]:
    """Adds coverage to the normalised scores and keeps the best hypotheses, best first."""
    ranked = [
        (_add(hypothesis, options.coverage_penalty * coverage(weights)), weights)
        for hypothesis, weights in finished
    ]
    ranked.sort(key=lambda pair: rank_of(pair[0], pair[0].normalized_score or 0.0))
    best = ranked[: options.num_hypotheses]
    if options.return_scores:
        return best
    return [(each._replace(score=None, normalized_score=None), weights) for each, weights in best]


def _add(hypothesis: Hypothesis, gain: float) -> Hypothesis:
    assert hypothesis.normalized_score is not None
    return hypothesis._replace(normalized_score=hypothesis.normalized_score + gain)
