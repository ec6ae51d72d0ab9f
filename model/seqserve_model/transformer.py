"""The encoder-decoder transformer on one page.

Source: Vaswani et al. 2017, "Attention Is All You Need", §3. Where the configuration leaves the
paper (pre-norm, RMSNorm, gated feed-forward, other positions) the classes name their own source.

Shapes: B batch, S source length, T target length, Q and K lengths of queries and keys, H heads,
D head size, A = H·D width of all heads, W width, V vocabulary, L layers. Sequences are padded on
the right; a cache of past keys and values lets the decoder continue where it stopped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_model.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)
from seqserve_model.config import DecoderCell, NormPosition, TransformerConfig
from seqserve_model.layers import DecoderLayer, EncoderLayer, Sublayer, make_norm
from seqserve_model.positions import Positions, make_positions


@dataclass(slots=True, kw_only=True)
class AttentionRecord:
    """Attention weights of every layer, filled by a pass that gets one as an argument."""

    encoder: list[Tensor] = field(default_factory=list)  # L × [B, H, S, S]
    decoder: list[Tensor] = field(default_factory=list)  # L × [B, H, T, T]; SSRU leaves it empty
    cross: list[Tensor] = field(default_factory=list)  # L × [B, H, T, S]


@dataclass(slots=True, kw_only=True)
class DecoderState:
    """A decoder's state between calls: memory and past tokens."""

    memory: list[tuple[Tensor, Tensor]]  # L × (key, value) [B, H, S, D]
    memory_mask: Tensor  # [B, 1, 1, S]
    past: list[tuple[Tensor, Tensor] | None]  # L × (key, value) [B, H, T, D]
    cells: list[Tensor]  # L × [B, W], in place of the past where layers are recurrent
    length: int = 0  # target tokens read so far

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Appends keys and values to a layer's past and returns all of them."""
        if (past := self.past[layer]) is not None:
            key = torch.cat((past[0], key), dim=2)
            value = torch.cat((past[1], value), dim=2)
        self.past[layer] = key, value
        return key, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Position of a block of queries: the scheme, the layer, the first position."""

    positions: Positions
    layer: int
    start: int


def project_self(
    attention: MultiHeadAttention, place: Place, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Projects ``[B, T, W]`` to query, key and value ``[B, H, T, D]``, with positions marked."""
    rotate = place.positions.rotate
    query = rotate(attention.project_query(x), place.start)
    key, value = attention.project_key_value(x)
    return query, rotate(key, place.start), value


def project_memory(attention: MultiHeadAttention, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Projects the memory ``[B, S, W]`` to key and value ``[B, H, S, D]``, as kept in a cache."""
    return attention.remember(*attention.project_key_value(memory))


def attend(
    attention: MultiHeadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    place: Place,
    record: list[Tensor] | None,
) -> Tensor:
    """Lets queries attend to keys, by the fused kernel unless the weights are needed.

    Args:
        attention: The layer's projections.
        query: ``[B, H, Q, D]``.
        key: ``[B, H, K, D]``.
        value: ``[B, H, K, D]``.
        mask: True where a key may be seen; broadcast to ``[B, H, Q, K]``.
        place: Position of the queries.
        record: Receives the weights ``[B, H, Q, K]``.

    Returns:
        ``[B, Q, W]``.
    """
    positions, layer, start = place.positions, place.layer, place.start
    bias = positions.bias(layer, query, start, key.size(2))
    if record is None and not positions.needs_weights:
        dropout = attention.dropout if attention.training else 0.0
        heads = scaled_dot_product_attention(query, key, value, mask, bias, dropout)
        return attention.project_output(heads)
    weights = attention_weights(query, key, mask, bias)
    if record is not None:
        record.append(weights)
    weights = F.dropout(weights, attention.dropout, attention.training)
    heads = weights @ value
    by_position = positions.values(layer, weights, start)
    return attention.project_output(heads if by_position is None else heads + by_position)


class Transformer(nn.Module):
    """Encoder and decoder stacks over token embeddings, and the projection to the vocabulary."""

    def __init__(self, config: TransformerConfig) -> None:
        """Makes all layers, with Xavier-uniform projections and embeddings of variance 1/W."""
        super().__init__()
        self.config = config
        self.embedding_scale = math.sqrt(config.width) if config.scaled_embeddings else 1.0
        self.source_embedding = nn.Embedding(config.source_tokens, config.width)
        self.target_embedding = (
            self.source_embedding
            if config.shared_embeddings
            else nn.Embedding(config.vocabulary_size, config.width)
        )
        self.output_projection = nn.Linear(config.width, config.vocabulary_size, bias=False)
        # Apart from the projection, because some uses project onto a few tokens only.
        self.logits_bias = (
            nn.Parameter(torch.zeros(config.vocabulary_size)) if config.logits_bias else None
        )
        self.encoder_positions = make_positions(config, layers=config.encoder_layers, causal=False)
        self.decoder_positions = make_positions(
            config.decoder, layers=config.decoder_layers, causal=True
        )
        self.memory_positions = Positions()  # a target token has no position in the source
        normed = config.embedding_norm
        self.encoder_embedding_norm = make_norm(config) if normed else nn.Identity()
        self.decoder_embedding_norm = make_norm(config) if normed else nn.Identity()
        # Casts, because torch does not type the entries of a ModuleList.
        self.encoder_layers = cast(
            Sequence[EncoderLayer],
            nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers)),
        )
        self.decoder_layers = cast(
            Sequence[DecoderLayer],
            nn.ModuleList(DecoderLayer(config.decoder) for _ in range(config.decoder_layers)),
        )
        pre = config.norm_position is NormPosition.PRE
        # A pre-norm stack leaves its sum unnormalised: one more norm at the end of each.
        self.encoder_norm = make_norm(config) if pre else nn.Identity()
        self.decoder_norm = make_norm(config) if pre else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self._initialise()
        if config.tied_output:
            self.output_projection.weight = self.target_embedding.weight

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.width**-0.5)

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        """Computes the logits of every next token of known targets.

        Args:
            source: Token ids ``[B, S]``.
            source_lengths: ``[B]``.
            target: Token ids ``[B, T]``, the begin token first.

        Returns:
            Logits ``[B, T, V]``; those at t are for the token after ``target[:, t]``.
        """
        return self.project(self.features(source, source_lengths, target))

    def features(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        """Returns the decoder's output ``[B, T, W]``, from which :meth:`project` makes logits."""
        memory = self.encode(source, source_lengths)
        return self.advance(target, self.begin(memory, source_lengths))

    def project(self, features: Tensor) -> Tensor:
        """Maps the decoder's output ``[.., W]`` to logits ``[.., V]``."""
        logits: Tensor = self.output_projection(features)
        return logits if self.logits_bias is None else logits + self.logits_bias

    def encode(
        self, source: Tensor, source_lengths: Tensor, record: AttentionRecord | None = None
    ) -> Tensor:
        """Encodes sources ``[B, S]`` of ``source_lengths`` ``[B]`` to the memory ``[B, S, W]``."""
        mask = padding_mask(source_lengths, source.size(1))
        weights = record.encoder if record else None
        x = self.encoder_positions.embed(self.embed_tokens(self.source_embedding, source), 0)
        x = self.dropout(self.encoder_embedding_norm(x))
        for index, layer in enumerate(self.encoder_layers):
            x = layer(x, partial(self._attend_source, index, mask, weights))
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def begin(self, memory: Tensor, source_lengths: Tensor) -> DecoderState:
        """Starts decoding: projects the memory ``[B, S, W]`` to each layer's keys and values."""
        start = memory.new_zeros(memory.size(0), self.config.width)
        return DecoderState(
            memory=[project_memory(layer.cross_attention, memory) for layer in self.decoder_layers],
            memory_mask=padding_mask(source_lengths, memory.size(1)),
            past=[None] * len(self.decoder_layers),
            cells=[start] * len(self.decoder_layers),
        )

    def advance(
        self, target: Tensor, state: DecoderState, record: AttentionRecord | None = None
    ) -> Tensor:
        """Reads further target tokens ``[B, T]`` and adds them to the state.

        Returns:
            The decoder's output ``[B, T, W]``, from which :meth:`project` makes logits.
        """
        mask = causal_mask(target.size(1), state.length + target.size(1), target.device)
        own, cross = (record.decoder, record.cross) if record else (None, None)
        x = self.embed_target(target)
        x = self.decoder_positions.embed(x, state.length)
        x = self.dropout(self.decoder_embedding_norm(x))
        for index, layer in enumerate(self.decoder_layers):
            read_target: Sublayer = partial(self._attend_target, index, state, mask, own)
            if self.config.decoder_cell is DecoderCell.SSRU:
                read_target = partial(self._recur, index, state)
            attend_memory = partial(self._attend_memory, index, state, cross)
            x = layer(x, read_target, attend_memory)
        state.length += target.size(1)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def embed_tokens(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Looks up tokens ``[..]`` and scales their embeddings ``[.., W]`` (§3.4)."""
        x: Tensor = embedding(tokens)
        return x if self.embedding_scale == 1.0 else x * self.embedding_scale

    def embed_target(self, tokens: Tensor) -> Tensor:
        """Looks up target tokens ``[..]``: ``[.., W]``, zeros at the start if so configured."""
        x = self.embed_tokens(self.target_embedding, tokens)
        if self.config.zero_start:
            x = x.masked_fill((tokens == self.config.bos_id)[..., None], 0.0)
        return x

    def _attend_source(
        self, layer: int, mask: Tensor, record: list[Tensor] | None, x: Tensor
    ) -> Tensor:
        attention = self.encoder_layers[layer].self_attention
        place = Place(positions=self.encoder_positions, layer=layer, start=0)
        query, key, value = project_self(attention, place, x)
        return attend(attention, query, key, value, mask, place, record)

    def _attend_target(
        self, layer: int, state: DecoderState, mask: Tensor, record: list[Tensor] | None, x: Tensor
    ) -> Tensor:
        attention = self.decoder_layers[layer].self_attention
        place = Place(positions=self.decoder_positions, layer=layer, start=state.length)
        query, key, value = project_self(attention, place, x)
        key, value = state.extend(layer, *attention.remember(key, value))
        return attend(attention, query, key, value, mask, place, record)

    def _recur(self, layer: int, state: DecoderState, x: Tensor) -> Tensor:
        cell = self.decoder_layers[layer].ssru
        y, state.cells[layer] = cell(x, state.cells[layer])
        return y  # type: ignore[no-any-return]

    def _attend_memory(
        self, layer: int, state: DecoderState, record: list[Tensor] | None, x: Tensor
    ) -> Tensor:
        attention = self.decoder_layers[layer].cross_attention
        place = Place(positions=self.memory_positions, layer=layer, start=0)
        query = attention.project_query(x)
        key, value = state.memory[layer]
        return attend(attention, query, key, value, state.memory_mask, place, record)
