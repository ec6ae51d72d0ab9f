"""What a request asks of each step beside the best word."""

from __future__ import annotations

from typing import NamedTuple

from seqserve_server.engine.limits import MOST_RANKS
from seqserve_server.engine.request import DecodingOptions


class Needs(NamedTuple):
    """What the graph is to give."""

    ranked: int
    """Best words of each row."""
    shows_scores: bool
    """Whether the scores of all words are needed, since the request changes them."""


def needs_of(options: DecodingOptions) -> Needs:
    """Tells what a request needs."""
    ranked = options.return_top_tokens
    if options.beam_size > 1:
        ranked = max(ranked, 2 * options.beam_size)
    if options.return_alternatives:
        ranked = max(ranked, options.num_hypotheses)
    if options.sampling and options.sampling.top_k <= MOST_RANKS:
        ranked = max(ranked, options.sampling.top_k)
    return Needs(ranked, options.needs_distribution and not options.vocabulary)
