"""Position schemes of the decoder step, where every row stands at a position of its own."""

import math

import torch
from torch import Tensor, nn

from seqserve_export import operators
from seqserve_export.fp16_conversion import dtype_of
from seqserve_model.attention import split_heads
from seqserve_model.positions import (
    AlibiPositions,
    RelativePositions,
    T5LayerPositions,
    T5Positions,
)
from seqserve_model.transformer import Transformer

_BY_DISTANCE = (T5Positions, T5LayerPositions, AlibiPositions)
"""Schemes whose bias does not depend on the query."""


class StepPositions(nn.Module):
    """Computes what a scheme adds to the attention of a step, for rows of any length."""

    def __init__(self, model: Transformer) -> None:
        """Tabulates the bias by distance for schemes whose bias does not depend on the query."""
        super().__init__()
        self.config, self.scheme = model.config.decoder, model.decoder_positions
        self.dtype = dtype_of(model)
        # The cache holds the begin token too.
        self.capacity = model.config.max_target_length + 1
        if isinstance(self.scheme, _BY_DISTANCE):
            layers = range(model.config.decoder_layers)
            table = (
                torch.stack([self._bias_by_distance(layer) for layer in layers])
                if isinstance(self.scheme, T5LayerPositions)
                else self._bias_by_distance(0)
            )
            self.register_buffer("bias_table", table)
            self.bias_table: Tensor  # [H, C], or [L, H, C]

    def _bias_by_distance(self, layer: int) -> Tensor:
        """Gives the bias of a key that lies 0, 1, .. tokens back, ``[H, C]``."""
        size = self.capacity
        shape = (1, self.config.heads, 1, self.config.head_size)
        query = torch.zeros(shape, dtype=self.dtype)
        bias = self.scheme.bias(layer, query, size - 1, size)
        assert bias is not None
        return bias[:, 0].flip(-1).detach()

    def bias(self, layer: int, qkv: Tensor, lengths: Tensor, max_length: Tensor) -> Tensor | None:
        """Gives the term ``[B, H, 1, K]`` of the logits of queries in ``qkv [B, 1, 3A]``."""
        scheme = self.scheme
        if isinstance(scheme, RelativePositions):
            query = split_heads(qkv.chunk(3, -1)[0], self.config.heads)  # [B, H, 1, D]
            products = query @ scheme.keys[layer].transpose(-2, -1)  # [B, H, 1, 2R + 1]
            index = self._distance_index(lengths)[:, None, None]
            index = index.expand(*products.shape[:3], -1)
            bias = products.gather(-1, index) / math.sqrt(self.config.head_size)
        elif isinstance(scheme, _BY_DISTANCE):
            back = (lengths.long()[:, None] - torch.arange(self.capacity)).clamp(min=0)  # [B, C]
            per_layer = isinstance(scheme, T5LayerPositions)
            table = self.bias_table[layer] if per_layer else self.bias_table
            bias = table.t()[back].permute(0, 2, 1)[:, :, None]  # [B, H, 1, C]
        else:
            return None
        return operators.first(bias, max_length)

    def values(self, layer: int, weights: Tensor, lengths: Tensor, max_length: Tensor) -> Tensor:
        """Gives what relative positions add to the values averaged by ``weights [B, H, 1, K]``.

        ``lengths [B]`` and ``max_length [1]``, which is K, are int32; the result is ``[B, 1, A]``.
        """
        assert isinstance(self.scheme, RelativePositions)
        table = self.scheme.averages[layer]  # [H, 2R + 1, D]
        index = operators.first(self._distance_index(lengths), max_length)  # [B, K]
        index = index[:, None, None].expand(-1, self.config.heads, 1, -1)
        # Entries past a row's own length were never written.
        written = torch.arange(self.capacity) <= lengths[:, None]
        written = operators.first(written, max_length)  # [B, K]
        weights = weights.where(written[:, None, None], 0.0)
        zeros = weights.new_zeros(*weights.shape[:3], table.size(1))
        by_distance = operators.add_at(zeros, index, weights)  # [B, H, 1, 2R + 1]
        return (by_distance @ table).transpose(1, 2).flatten(2)

    def _distance_index(self, lengths: Tensor) -> Tensor:
        """Indexes the clipped distance of each key that a cache could hold, ``[B, C]``."""
        assert isinstance(self.scheme, RelativePositions)
        distance = torch.arange(self.capacity) - lengths.long()[:, None]
        return distance.clamp(-self.scheme.distance, self.scheme.distance) + self.scheme.distance
