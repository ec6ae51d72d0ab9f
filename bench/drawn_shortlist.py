"""A shortlist and sources for random weights, drawn as often as words occur in texts.

How many tokens the sentences of a batch may choose from together depends on how many of their words
they share. Words that were all as likely would share next to none.

Source: Mandelbrot 1953, "An Informational Theory of the Statistical Structure of Language": the
word of rank r is as frequent as 1 / (r + 2.7).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import accumulate

from bench.marian import MARIAN_BASE, sources
from bench.peers import Rows
from seqserve_model.config import TransformerConfig
from seqserve_model.vocabulary import CONTROL_TOKENS
from seqserve_server.engine.shortlist import Shortlist

FREQUENT, BEST = 50, 50
"""Tokens that every source may choose, and translations of each source token, itself among them."""

_OFFSET = 2.7
_SPARE = 2
"""Times as many are drawn as are needed, because some repeat."""


def draw_shortlist(config: TransformerConfig = MARIAN_BASE, seed: int = 7) -> Shortlist:
    """Draws the translations of each word; control tokens are among the frequent ones."""
    draw, weights = random.Random(seed), _weights(config)
    words = range(len(CONTROL_TOKENS), config.vocabulary_size)
    return Shortlist.of(
        range(FREQUENT),
        {
            word: _first([word, *draw.choices(words, cum_weights=weights, k=_SPARE * BEST)])
            for word in words
        },
    )


def draw_sources(count: int, config: TransformerConfig = MARIAN_BASE) -> Rows:
    """Draws sources that are as long as those of other benchmarks."""
    return sources(count, config=config, cum_weights=_weights(config))


def _weights(config: TransformerConfig) -> Sequence[float]:
    """Gives the frequencies of all words but the control tokens, summed up."""
    ranks = range(1, config.vocabulary_size - len(CONTROL_TOKENS) + 1)
    return list(accumulate(1 / (rank + _OFFSET) for rank in ranks))


def _first(drawn: Iterable[int]) -> list[int]:
    return sorted(list(dict.fromkeys(drawn))[:BEST])
