"""The three graphs of an artifact, as modules around the one transformer they are exported from.

=========== ================================================ ======================================
graph       in                                               out
=========== ================================================ ======================================
encoder     source words and lengths                         keys and values of the memory for each
                                                             decoder layer, projected once
decoder     last words, lengths, caches                      next words, their log-probabilities,
                                                             caches with one more entry
teacher     a source and a target                            log-probability of each target word,
                                                             attention weights of every layer
=========== ================================================ ======================================

Nothing of the network is defined here: layers, norms and feed-forward are the transformer's own,
and only its attentions are passed as operators of ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from seqserve_export import operators
from seqserve_model.attention import MultiHeadAttention
from seqserve_model.config import PositionScheme
from seqserve_model.layers import DecoderLayer, EncoderLayer
from seqserve_model.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from seqserve_model.transformer import AttentionRecord, Transformer

Projection = Callable[[Tensor], Tensor]


def packed(attention: MultiHeadAttention) -> nn.Linear:
    """Joins the projections of query, key and value into one, W → 3W."""
    parts = (attention.query, attention.key, attention.value)
    linear = nn.Linear(attention.query.in_features, 3 * attention.query.out_features)
    linear.weight = nn.Parameter(torch.cat([part.weight for part in parts]))
    linear.bias = nn.Parameter(torch.cat([part.bias for part in parts]))
    return linear


def _packed(layers: Sequence[EncoderLayer] | Sequence[DecoderLayer]) -> Sequence[Projection]:
    linears = nn.ModuleList(packed(layer.self_attention) for layer in layers)
    # A cast, because torch does not tell what a ModuleList holds.
    return cast(Sequence[Projection], linears)


class Graph(nn.Module):
    """What the encoder's and the decoder's graph share: the model and its scaled embeddings."""

    def __init__(self, model: Transformer) -> None:
        """Takes the model."""
        super().__init__()
        self.model = model
        self.config = model.config

    def embed(self, embedding: nn.Embedding, words: Tensor) -> Tensor:
        """Looks up words and scales them as the model does."""
        return embedding(words) * self.scale  # type: ignore[no-any-return]

    @property
    def scale(self) -> float:
        """What embeddings are multiplied by."""
        return math.sqrt(self.config.width) if self.config.scaled_embeddings else 1.0


class EncoderGraph(Graph):
    """Source words to the keys and values that each decoder layer attends to."""

    def __init__(self, model: Transformer) -> None:
        """Packs the self-attentions of the encoder."""
        super().__init__(model)
        self.source_projections = _packed(model.encoder_layers)

    def forward(self, source: Tensor, source_lengths: Tensor) -> tuple[Tensor, ...]:
        """Encodes.

        Args:
            source: int64 ``[B, S]``.
            source_lengths: int32 ``[B]``.

        Returns:
            Key and value of each decoder layer in turn, ``[B, H, S, D]``.
        """
        positions, shape = self.model.encoder_positions, source.shape
        x = positions.embed(self.embed(self.model.source_embedding, source), 0)
        x = x.flatten(0, 1)  # [B * S, W]: a projection of a matrix is one node, Gemm
        for number, layer in enumerate(self.model.encoder_layers):
            x = layer(x, partial(self._attend, number, shape, source_lengths))
        memory = self.model.encoder_norm(x)  # [B * S, W]
        outputs: list[Tensor] = []
        for reader in self.model.decoder_layers:
            attention = reader.cross_attention
            for projection in (attention.key, attention.value):
                outputs.append(_split(projection(memory).view(*shape, -1), self.config.heads))
        return tuple(outputs)

    def _attend(self, number: int, shape: torch.Size, lengths: Tensor, x: Tensor) -> Tensor:
        attention = self.model.encoder_layers[number].self_attention
        positions, heads = self.model.encoder_positions, self.config.heads
        joint = self.source_projections[number](x).view(*shape, -1)  # [B, S, 3W]
        query, key, value = joint.chunk(3, dim=-1)
        if isinstance(positions, RotaryPositions):
            query, key = (_rotate(positions, part, heads) for part in (query, key))
        bias = positions.bias(number, _split(query, heads), 0, shape[1])
        if bias is not None:
            bias = bias[None]
        attended = operators.full_attention(query, key, value, lengths, bias, heads)
        return attention.output(attended.flatten(0, 1))  # type: ignore[no-any-return]


def _split(x: Tensor, heads: int) -> Tensor:
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)  # [B, H, S, D]


def _rotate(positions: RotaryPositions, x: Tensor, heads: int) -> Tensor:
    return positions.rotate(_split(x, heads), 0).transpose(1, 2).flatten(2)  # [B, S, W]


class DecoderGraph(Graph):
    """One step: the last word of every running row to its next word."""

    def __init__(self, model: Transformer) -> None:
        """Packs the self-attentions, and tabulates position biases where the scheme has some."""
        super().__init__(model)
        self.target_projections = _packed(model.decoder_layers)
        scheme = model.config.positions
        self.biased = scheme in (PositionScheme.T5, PositionScheme.ALIBI)
        if self.biased:
            self.register_buffer("bias_table", self._bias_by_distance())
            self.bias_table: Tensor  # [H, C]

    def _bias_by_distance(self) -> Tensor:
        """Gives the bias of a key that lies 0, 1, .. tokens back, ``[H, C]``."""
        size = self.config.max_target_length + 1
        query = torch.zeros(1, self.config.heads, 1, self.config.head_size)
        bias = self.model.decoder_positions.bias(0, query, size - 1, size)
        assert bias is not None
        return bias[:, 0].flip(-1).detach()

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        longest: Tensor,
        source_last: Tensor,
        source_longest: Tensor,
        adjust_index: Tensor,
        adjust_value: Tensor,
        caches: list[list[Tensor]],
    ) -> tuple[Tensor, ...]:
        """Advances every row by one word.

        Args:
            tokens: Last word of each row, int64 ``[B, 1]``.
            lengths: Words of each row already in its cache, int32 ``[B]``.
            longest: The longest row after this step, at least 2; int32 ``[1]``.
            source_last: Index of each row's last source word, int32 ``[B]``.
            source_longest: The longest source, at least 2; int32 ``[1]``.
            adjust_index: Words whose scores are changed, int64 ``[B, A]``.
            adjust_value: What is added to them, ``[B, A]``.
            caches: For each layer: self key, self value ``[B, H, C, D]``, cross key, cross value
                ``[B, H, S, D]``, and the cross key and value of the last source word ``[B, 1, W]``.

        Returns:
            Next word int64 ``[B, 1]``, its log-probability ``[B]``, then the four caches of each
            layer.
        """
        positions = lengths.long()
        x = self._embed_step(tokens.squeeze(1), positions)  # [B, W]
        updated: list[Tensor] = []
        for number, layer in enumerate(self.model.decoder_layers):
            own_key, own_value, key, value, last_key, last_value = caches[number]
            attend_target = partial(
                self._attend_target, number, (own_key, own_value), positions, lengths, longest
            )
            attend_memory = partial(
                self._attend_memory,
                number,
                (key, value),
                (last_key, last_value),
                source_last,
                source_longest,
            )
            x = layer(x, partial(attend_target, updated), partial(attend_memory, updated))
        scores = self.model.project(self.model.decoder_norm(x))  # [B, V]
        scores = operators.add_at(scores, adjust_index, adjust_value)
        word = operators.argmax(scores)  # [B, 1]
        return word, operators.log_softmax_at(scores, word), *updated

    def _embed_step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.embed(self.model.target_embedding, tokens)
        scheme = self.model.decoder_positions
        if isinstance(scheme, SinusoidalPositions | LearnedPositions):
            return x + scheme.table[positions]
        return x

    def _attend_target(
        self,
        number: int,
        cache: tuple[Tensor, Tensor],
        positions: Tensor,
        lengths: Tensor,
        longest: Tensor,
        updated: list[Tensor],
        x: Tensor,
    ) -> Tensor:
        attention = self.model.decoder_layers[number].self_attention
        scheme = self.model.decoder_positions
        heads, *caches = operators.cached_attention(
            self.target_projections[number](x)[:, None],
            None,
            None,
            cache,
            lengths,
            longest,
            self.config.heads,
            bias=self._bias(positions, longest) if self.biased else None,
            rotary=(scheme.cosine, scheme.sine) if isinstance(scheme, RotaryPositions) else None,
        )
        updated += caches
        return attention.output(heads.squeeze(1))  # type: ignore[no-any-return]

    def _attend_memory(
        self,
        number: int,
        cache: tuple[Tensor, Tensor],
        last: tuple[Tensor, Tensor],
        source_last: Tensor,
        source_longest: Tensor,
        updated: list[Tensor],
        x: Tensor,
    ) -> Tensor:
        attention = self.model.decoder_layers[number].cross_attention
        # The operator must write something: it writes the last source word where it already is.
        heads, *caches = operators.cached_attention(
            attention.query(x)[:, None],
            *last,
            cache,
            source_last,
            source_longest,
            self.config.heads,
        )
        updated += caches
        return attention.output(heads.squeeze(1))  # type: ignore[no-any-return]

    def _bias(self, positions: Tensor, longest: Tensor) -> Tensor:
        capacity = self.bias_table.size(1)
        back = (positions[:, None] - torch.arange(capacity)).clamp(min=0)  # [B, C]
        bias = self.bias_table.t()[back].permute(0, 2, 1)[:, :, None]  # [B, H, 1, C]
        return operators.first(bias, longest)


class TeacherGraph(nn.Module):
    """A source and a known target in one pass."""

    def __init__(self, model: Transformer) -> None:
        """Takes the model as it is: its own attentions give the weights."""
        super().__init__()
        self.model = model

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores a target and shows what was attended to.

        Args:
            source: int64 ``[B, S]``.
            source_lengths: int32 ``[B]``.
            target: The begin token, then the words to score, int64 ``[B, T + 1]``.

        Returns:
            Log-probabilities ``[B, T]`` of the words, and the attention weights of encoder
            ``[L, B, H, S, S]``, decoder ``[L, B, H, T, T]`` and cross ``[L, B, H, T, S]``. Row t
            of the last two belongs to the step that chose word t.
        """
        record = AttentionRecord()
        memory = self.model.encode(source, source_lengths, record)
        state = self.model.begin(memory, source_lengths)
        logits = self.model.project(self.model.advance(target[:, :-1], state, record))
        scores = torch.log_softmax(logits, -1).gather(2, target[:, 1:, None]).squeeze(2)
        weights = (record.encoder, record.decoder, record.cross)
        return (scores, *(torch.stack(layers) for layers in weights))  # type: ignore[return-value]
