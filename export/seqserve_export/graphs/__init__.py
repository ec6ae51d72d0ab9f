"""The three graphs of an artifact, as modules around the one transformer they are exported from.

======= ==================================== ===================================================
graph   in                                   out
======= ==================================== ===================================================
encoder source tokens, one source after the  cross K/V of each decoder layer
        other
decoder last tokens, lengths, caches or      next tokens, their log-probabilities, the top-k
        states of the target                 tokens, logits of all or of some tokens, caches with
                                             one more entry or new states
scorer  a source and a known target          log-probability of each target token, attention
                                             weights of every layer
======= ==================================== ===================================================

Nothing of the network is defined here: layers, norms and feed-forward are the transformer's own.
Only its attentions are replaced by operators of ONNX Runtime.

All compute projections alike: projections of one input are joined.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_export import operators
from seqserve_export.quantization import QuantizedLinear, cache_scales, joint_bias
from seqserve_model.layers import DecoderLayer, EncoderLayer

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


Projection = Callable[[Tensor], Tensor]
"""Maps ``[.., W]`` to ``[.., N]``."""


def qkv_projections(
    layers: Sequence[EncoderLayer] | Sequence[DecoderLayer],
) -> Sequence[Projection]:
    """Joins query, key and value of each self-attention into one projection, W → 3A."""
    attentions = [layer.self_attention for layer in layers]
    return _joined((attention.query, attention.key, attention.value) for attention in attentions)


def ssru_projections(layers: Sequence[DecoderLayer]) -> Sequence[Projection]:
    """Joins candidate and forget gate of each SSRU into one projection, W → 2W."""
    return _joined((layer.ssru.input, layer.ssru.forget) for layer in layers)


def _joined(layers: Iterable[Sequence[nn.Linear]]) -> Sequence[Projection]:
    # A cast, because torch does not type the entries of a ModuleList.
    return cast(Sequence[Projection], nn.ModuleList(_joint(parts) for parts in layers))


def _joint(parts: Sequence[nn.Linear]) -> nn.Module:
    if isinstance(parts[0], QuantizedLinear):
        return QuantizedLinear.joined(cast(Sequence[QuantizedLinear], parts))
    bias, outputs = joint_bias(parts), sum(part.out_features for part in parts)
    joint = nn.Linear(parts[0].in_features, outputs, bias is not None)
    joint.weight = nn.Parameter(torch.cat([part.weight for part in parts]))
    if bias is not None:
        joint.bias = nn.Parameter(bias)
    return joint


class CrossProjection(nn.Module):
    """Projects encoder output to the cached keys, or values, of one cross-attention."""

    def __init__(self, projection: nn.Module, scale: Tensor | None) -> None:
        """Takes the projection, and the scale of each channel ``[A]`` for an int8 cache."""
        super().__init__()
        if scale is not None:
            # One scale for all, once the projection is divided: one a channel is scalar code.
            projection = cast(QuantizedLinear, projection).divided(scale)
        self.projection = projection
        self.register_buffer("scale", scale)
        self.scale: Tensor | None

    def forward(self, memory: Tensor) -> Tensor:
        """Maps encoder output ``[.., W]`` to cache entries ``[.., A]``, float or int8."""
        projected: Tensor = self.projection(memory)
        if self.scale is None:
            return projected
        return operators.quantize(projected, torch.ones(()), torch.zeros((), dtype=torch.int8))

    def dequantized(self, cached: Tensor) -> Tensor:
        """Maps cache entries ``[.., A]`` back to floats."""
        return cached if self.scale is None else cached * self.scale


def cross_projections(layers: Sequence[DecoderLayer]) -> Sequence[CrossProjection]:
    """Makes the key and the value projection of each layer, in this order."""
    modules = nn.ModuleList()
    for layer in layers:
        attention = layer.cross_attention
        scales = cache_scales(attention)
        key, value = (None, None) if scales is None else (part.flatten() for part in scales)
        modules.append(CrossProjection(attention.key, key))
        modules.append(CrossProjection(attention.value, value))
    return cast(Sequence[CrossProjection], modules)
