"""The output projection onto some words only, which costs what those words cost.

It gives the very numbers of the whole projection, so that a row's scores depend neither on which
other words are asked for, nor on other rows. Sums of integers are exact in any order; sums of
floats are not, so they have to be added up in the order in which the whole projection adds them.
Its weight is packed when the graph is loaded, and from a packed weight ONNX Runtime takes 256
inputs at a time. From rows gathered while the graph runs it takes the more the fewer words there
are: 256 where there are 33 to 64. Hence words come in groups of 64, each a product of its own.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_export import operators
from seqserve_export.quantization import QuantizedLinear

GROUP = 64
"""Words that are multiplied at once."""


def project_some(projection: nn.Linear | QuantizedLinear, x: Tensor, words: Tensor) -> Tensor:
    """Gives scores of some words.

    One thread must not share a group with another, so there are to be as many groups as threads,
    or none at all.

    Args:
        projection: Onto the whole vocabulary, W → V, without a bias.
        x: ``[B, W]``.
        words: In groups, int64 ``[G, 64]``; any word, as often as one likes.

    Returns:
        ``[B, G, 64]``.
    """
    x = operators.empty_as(x[None], words)  # [1, B, W]
    if isinstance(projection, QuantizedLinear):
        scores = projection.some(x, words)  # [G, B, 64]
    else:
        scores = operators.grouped_product(x, F.embedding(words, projection.weight))
    return scores.transpose(0, 1)
