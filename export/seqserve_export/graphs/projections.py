"""Attention projections laid out as the graphs compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from seqserve_export import operators
from seqserve_export.quantization import QuantizedLinear, cache_scales
from seqserve_model.attention import MultiHeadAttention
from seqserve_model.layers import DecoderLayer, EncoderLayer

Projection = Callable[[Tensor], Tensor]
"""Maps ``[.., W]`` to ``[.., N]``."""


def qkv_projections(
    layers: Sequence[EncoderLayer] | Sequence[DecoderLayer],
) -> Sequence[Projection]:
    """Joins query, key and value of each self-attention into one projection, W → 3A."""
    linears = nn.ModuleList(_qkv_projection(layer.self_attention) for layer in layers)
    # A cast, because torch does not type the entries of a ModuleList.
    return cast(Sequence[Projection], linears)


def _qkv_projection(attention: MultiHeadAttention) -> nn.Module:
    parts = (attention.query, attention.key, attention.value)
    if isinstance(attention.query, QuantizedLinear):
        return QuantizedLinear.joined(cast(Sequence[QuantizedLinear], parts))
    has_bias = attention.query.bias is not None
    linear = nn.Linear(attention.query.in_features, 3 * attention.query.out_features, has_bias)
    linear.weight = nn.Parameter(torch.cat([part.weight for part in parts]))
    if has_bias:
        linear.bias = nn.Parameter(torch.cat([part.bias for part in parts]))
    return linear


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
