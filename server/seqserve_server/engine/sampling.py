"""Drawing a word at random.

Sources: Fan et al. 2018, "Hierarchical Neural Story Generation" (top k); Holtzman et al. 2020, "The
Curious Case of Neural Text Degeneration" (top p); Nguyen et al. 2024, "Turning Up the Heat: Min-p
Sampling" (min p).
"""

from __future__ import annotations

import numpy as np

from seqserve_server.engine.request import Sampling
from seqserve_server.engine.scores import Array, largest

_FEW = 128


def draw(scores: Array, sampling: Sampling, random: np.random.Generator) -> int:
    """Draws a place of ``scores``; takes one random number, whatever the options are.

    Args:
        scores: Of all words, or of at least the ``top_k`` most probable, ``[N]``; a number that is
            added to all of them makes no difference.
        sampling: Which words stay, and how likely they are.
        random: Gives the number.
    """
    places, weights = candidates(scores, sampling)
    upto = weights.cumsum()
    place = int(np.searchsorted(upto, random.random() * upto[-1], side="right"))
    # A sum of many weights may be rounded down.
    return int(places[min(place, len(places) - 1)])


def candidates(scores: Array, sampling: Sampling) -> tuple[Array, Array]:
    """Gives places of ``scores [N]`` that stay, and their weights, which need not sum to 1."""
    scaled = (scores - scores.max()).astype(np.float64) / sampling.temperature
    weights = np.exp(scaled)
    places = np.arange(len(weights))
    if 0 < sampling.top_k < len(places):
        places = largest(weights, sampling.top_k)
    if sampling.top_p < 1.0:
        places = _nucleus(places, weights, sampling.top_p)
    if sampling.min_p > 0.0:
        # The most probable word has a weight of 1.
        places = places[weights[places] >= sampling.min_p]
    return places, weights[places]


def _nucleus(places: Array, weights: Array, share: float) -> Array:
    """Keeps the most probable words that together have a share of the probability."""
    among = weights[places]
    enough = share * among.sum()
    # Few words have nearly all of it, as a rule, and sorting the others would be in vain.
    count = min(_FEW, len(places))
    while True:
        best = largest(among, count)
        upto = among[best].cumsum()
        if upto[-1] >= enough or count == len(places):
            return places[best[: int(np.searchsorted(upto, enough)) + 1]]
        count = len(places)
