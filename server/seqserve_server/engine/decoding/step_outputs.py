"""What a request asks of each step beside the best word."""

from __future__ import annotations

from typing import NamedTuple

from seqserve_server.contract.limits import MAX_TOP_K
from seqserve_server.contract.options import DecodingOptions


class StepOutputs(NamedTuple):
    """What the graph is to give."""

    ranked: int
    """Best words of each row."""
    shows_scores: bool
    """Whether the scores of all words are needed, since the request changes them."""


def step_outputs_of(options: DecodingOptions) -> StepOutputs:
    """Tells what a request needs."""
    ranked = options.return_top_tokens
    if options.beam_size > 1:
        ranked = max(ranked, 2 * options.beam_size)
    if options.return_alternatives:
        ranked = max(ranked, options.num_hypotheses)
    if options.sampling and options.sampling.top_k <= MAX_TOP_K:
        ranked = max(ranked, options.sampling.top_k)
    return StepOutputs(ranked, options.needs_distribution and not options.vocabulary)
