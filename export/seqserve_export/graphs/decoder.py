"""The decoder graph: one step, from the last token of every running row to its next logits."""

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_export import operators
from seqserve_export.fp16_conversion import dtype_of
from seqserve_export.graphs import qkv_projections, ssru_projections
from seqserve_export.quantization import cache_scales, precision_of
from seqserve_model.attention import split_heads
from seqserve_model.config import DecoderCell
from seqserve_model.layers import Sublayer, ssru_step
from seqserve_model.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    T5LayerPositions,
    T5Positions,
)
from seqserve_model.transformer import Transformer

_BY_DISTANCE = (T5Positions, T5LayerPositions, AlibiPositions)
"""Schemes whose bias does not depend on the query."""


class StepRows(NamedTuple):
    """The running rows."""

    tokens: Tensor  # last token of each row, int64 [B, 1]
    lengths: Tensor  # tokens of each row already in its cache, int32 [B]
    max_length: Tensor  # length of the longest row after this step, at least 2; int32 [1]
    source_last_index: Tensor  # index of each row's last source token, int32 [B]
    max_source_length: Tensor  # length of the longest source, at least 2; int32 [1]
    projected_rows: Tensor
    """Rows to project onto the whole vocabulary, int64 ``[P]``; may be empty. Every output with an
    axis P is of these rows, in this order."""
    bias_tokens: Tensor  # tokens whose logits are changed, int64 [P, A]; may be empty
    bias_values: Tensor  # added to the logits of bias_tokens, [P, A]


class LayerCaches(NamedTuple):
    """The caches of one layer."""

    past: tuple[Tensor, ...]
    """Keys and values of the target, ``[B, H, C, D]`` each; or the state of an SSRU ``[B, W]``."""
    cross_key: Tensor  # [B, H, S, D]
    cross_value: Tensor  # [B, H, S, D]
    last_key: Tensor  # cross key of the last source token, [B, 1, A]
    last_value: Tensor  # cross value of the last source token, [B, 1, A]


class DecoderGraph(nn.Module):
    """Advances every running row by one token."""

    def __init__(self, model: Transformer) -> None:
        """Joins the projections of each layer's first part, and tabulates position biases."""
        super().__init__()
        self.model, self.heads = model, model.config.decoder.heads
        self.is_recurrent = model.config.decoder_cell is DecoderCell.SSRU
        join = ssru_projections if self.is_recurrent else qkv_projections
        self.target_projections = join(model.decoder_layers)
        self.positions = StepPositions(model)
        # A float projection of a matrix with its bias is one node, Gemm; integers take any shape.
        self.is_flat = precision_of(model) != "int8"

    def forward(self, rows: StepRows, caches: list[LayerCaches]) -> tuple[Tensor, ...]:
        """Advances every row by one token, up to its logits; :mod:`step_outputs` goes on.

        Returns:
            Features ``[B, W]``, logits with their biases ``[P, V]``, then of each layer its past
            and its cross caches.
        """
        x = self._embed(rows)
        updated: list[Tensor] = []
        for index, (layer, cache) in enumerate(zip(self.model.decoder_layers, caches, strict=True)):
            read_target: Sublayer = partial(self._attend_target, index, rows, cache, updated)
            if self.is_recurrent:
                read_target = partial(self._recur, index, cache, updated)
            attend_memory = partial(self._attend_memory, index, rows, cache, updated)
            x = layer(x, read_target, attend_memory)
        features = self.model.decoder_norm(x)
        if not self.is_flat:
            features = features.squeeze(1)  # [B, W]
        logits = self.model.project(F.embedding(rows.projected_rows, features))  # [P, V]
        # Here and not in the branches that follow, which would copy all logits to change some.
        logits = operators.add_at(logits, rows.bias_tokens, rows.bias_values)
        return features, logits, *updated

    def _embed(self, rows: StepRows) -> Tensor:
        """Looks up the last tokens: ``[B, W]``, or ``[B, 1, W]`` for integers."""
        tokens, lengths = rows.tokens, rows.lengths
        if self.is_flat:
            tokens = tokens.squeeze(1)
        else:
            lengths = lengths[:, None]
        x = self.model.embed_target(tokens)
        scheme = self.model.decoder_positions
        if isinstance(scheme, SinusoidalPositions | LearnedPositions):
            x = x + F.embedding(lengths, scheme.table)
        return self.model.decoder_embedding_norm(x)  # type: ignore[no-any-return]

    def _as_step(self, x: Tensor) -> Tensor:
        return x[:, None] if self.is_flat else x  # [B, 1, W], as attention wants it

    def _as_rows(self, x: Tensor) -> Tensor:
        return x.squeeze(1) if self.is_flat else x

    def _attend_target(
        self, index: int, rows: StepRows, cache: LayerCaches, updated: list[Tensor], x: Tensor
    ) -> Tensor:
        attention = self.model.decoder_layers[index].self_attention
        scheme = self.model.decoder_positions
        qkv = self._as_step(self.target_projections[index](x))  # [B, 1, 3A]
        own_key, own_value = cache.past
        heads, key, value, *weights = operators.cached_attention(
            qkv,
            None,
            None,
            (own_key, own_value),
            rows.lengths,
            rows.max_length,
            self.heads,
            bias=self.positions.bias(index, qkv, rows.lengths, rows.max_length),
            rotary=(scheme.cosine, scheme.sine) if isinstance(scheme, RotaryPositions) else None,
            scales=cache_scales(attention),
            return_weights=scheme.needs_weights,
        )
        updated += [key, value]
        if weights:
            heads = heads + self.positions.values(index, weights[0], rows.lengths, rows.max_length)
        return attention.output(self._as_rows(heads))  # type: ignore[no-any-return]

    def _recur(self, index: int, cache: LayerCaches, updated: list[Tensor], x: Tensor) -> Tensor:
        joint = self.target_projections[index](x)
        candidate, forget = (joint if self.is_flat else joint.squeeze(1)).chunk(2, dim=-1)
        [state] = cache.past
        # States are fp32 at any precision.
        y, state = ssru_step(candidate.float(), forget.float(), state)
        updated.append(state)
        y = y.to(x.dtype)
        return y if self.is_flat else y[:, None]

    def _attend_memory(
        self, index: int, rows: StepRows, cache: LayerCaches, updated: list[Tensor], x: Tensor
    ) -> Tensor:
        attention = self.model.decoder_layers[index].cross_attention
        # The operator must write something: it writes the last source token where it already is.
        heads, key, value = operators.cached_attention(
            self._as_step(attention.query(x)),
            cache.last_key,
            cache.last_value,
            (cache.cross_key, cache.cross_value),
            rows.source_last_index,
            rows.max_source_length,
            self.heads,
            scales=cache_scales(attention),
        )
        updated += [key, value]
        return attention.output(self._as_rows(heads))  # type: ignore[no-any-return]


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
        """Returns the bias of a key that lies 0, 1, .. tokens back, ``[H, C]``."""
        size = self.capacity
        shape = (1, self.config.heads, 1, self.config.head_size)
        query = torch.zeros(shape, dtype=self.dtype)
        bias = self.scheme.bias(layer, query, size - 1, size)
        assert bias is not None
        return bias[:, 0].flip(-1).detach()

    def bias(self, layer: int, qkv: Tensor, lengths: Tensor, max_length: Tensor) -> Tensor | None:
        """Returns the term ``[B, H, 1, K]`` of the logits of queries in ``qkv [B, 1, 3A]``."""
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
        """Returns the term that relative positions add to the values averaged by ``weights [B, H,
        1, K]``.

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
