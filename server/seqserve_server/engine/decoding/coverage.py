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

    ``weights`` are those of each target token to the source, ``[T, S]``.
    """
    attention = weights.sum(axis=0, dtype=np.float64)
    return float(np.log(np.minimum(attention[attention > 0], 1.0)).sum())


def ranked_by_coverage(finished: list[Attended], options: DecodingOptions) -> list[Attended]:
    """Adds coverage to the normalised scores and keeps the best hypotheses, best first."""
    ranked = []
    for hypothesis, weights in finished:
        assert hypothesis.normalized_score is not None
        score = hypothesis.normalized_score + options.coverage_penalty * coverage(weights)
        shown = score if options.return_scores else None
        kept = hypothesis.score if options.return_scores else None
        scored = hypothesis._replace(score=kept, normalized_score=shown)
        ranked.append((rank_of(hypothesis, score), (scored, weights)))
    ranked.sort(key=lambda entry: entry[0])
    return [pair for _, pair in ranked[: options.num_hypotheses]]
