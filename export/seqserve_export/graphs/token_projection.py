"""The output projection onto some tokens only, at the cost of those tokens only.

It computes the same bits as the whole projection, so that a row's logits depend neither on which
other tokens are requested nor on other rows. Sums of integers are exact in any order. Sums of
floats are not: they must be added in the order of the whole projection. Its weight is packed when
the graph is loaded, and ONNX Runtime reads a packed weight 256 inputs at a time. With rows that are
gathered at run time, the block of inputs depends on the number of tokens: it is 256 for 33 to 64
tokens. Hence tokens come in groups of 64, each a product of its own.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_export import operators
from seqserve_export.quantization import QuantizedLinear

GROUP = 64
"""Tokens of one product."""


def project_tokens(
    projection: nn.Linear | QuantizedLinear, x: Tensor, tokens: Tensor, bias: Tensor | None
) -> Tensor:
    """Computes the logits ``[B, G, 64]`` of some tokens from ``x [B, W]``.

    Args:
        projection: Onto the whole vocabulary, W → V, without a bias.
        tokens: Token ids in groups, int64 ``[G, 64]``; repetitions are allowed. Threads must not
            share a group, so pass at least as many groups as threads, or none at all.
        bias: Of each token's logit, ``[V]``.
    """
    x = operators.empty_as(x[None], tokens)  # [1, B, W]
    if isinstance(projection, QuantizedLinear):
        logits = projection.project_channels(x, tokens)  # [G, B, 64]
    else:
        logits = operators.grouped_product(x, F.embedding(tokens, projection.weight)).float()
    logits = logits.transpose(0, 1)
    return logits if bias is None else logits + F.embedding(tokens, bias[:, None]).squeeze(2)
