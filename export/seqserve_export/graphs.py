"""The three graphs of an artifact, as modules around the one transformer they are exported from.

=========== ================================================ ======================================
graph       in                                               out
=========== ================================================ ======================================
encoder     words of sources, and where each belongs         keys and values of the memory for each
                                                             decoder layer, projected_rows once
decoder     last words, lengths, caches                      next words, their log-probabilities,
                                                             the best words, logits of all or of
                                                             some words, caches with one more entry
scorer     a source and a target                            log-probability of each target word,
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
from torch.nn import functional as F

from seqserve_export import operators
from seqserve_export.quantization import QuantizedLinear, cache_scales, precision_of
from seqserve_export.shortlist import project_some
from seqserve_model.attention import MultiHeadAttention, padding_mask
from seqserve_model.config import PositionScheme
from seqserve_model.layers import DecoderLayer, EncoderLayer
from seqserve_model.positions import (
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from seqserve_model.transformer import (
    AttentionRecord,
    Place,
    Transformer,
    attend,
    project_self,
)

Projection = Callable[[Tensor], Tensor]


def packed(attention: MultiHeadAttention) -> nn.Module:
    """Joins the projections of query, key and value into one, W → 3W."""
    parts = (attention.query, attention.key, attention.value)
    if isinstance(attention.query, QuantizedLinear):
        return QuantizedLinear.joined(cast(Sequence[QuantizedLinear], parts))
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
        # A projection of a matrix with its bias is one node, Gemm; integers take any shape.
        self.flat = precision_of(model) == "fp32"

    def embed(self, embedding: nn.Embedding, words: Tensor) -> Tensor:
        """Looks up words and scales them as the model does."""
        return embedding(words) * self.scale  # type: ignore[no-any-return]

    @property
    def scale(self) -> float:
        """What embeddings are multiplied by."""
        return math.sqrt(self.config.width) if self.config.scaled_embeddings else 1.0


class MemoryProjection(nn.Module):
    """The memory to the keys, or the values, that one cross-attention keeps of it."""

    def __init__(self, projection: nn.Module, scale: Tensor | None) -> None:
        """Takes the projection, and the scale of each channel ``[W]`` where the cache is int8."""
        super().__init__()
        if scale is not None:
            # A scale for all, once the projection is divided; one a channel is scalar code.
            projection = cast(QuantizedLinear, projection).divided(scale)
        self.projection = projection
        self.register_buffer("scale", scale)
        self.scale: Tensor | None

    def forward(self, memory: Tensor) -> Tensor:
        """Maps ``[.., W]`` to what is kept, ``[.., W]``."""
        projected_rows: Tensor = self.projection(memory)
        if self.scale is None:
            return projected_rows
        return operators.quantize(projected_rows, torch.ones(()), torch.zeros((), dtype=torch.int8))

    def whole(self, kept: Tensor) -> Tensor:
        """Gives what was kept back as numbers, ``[.., W]``."""
        return kept if self.scale is None else kept * self.scale


def _kept(attention: MultiHeadAttention) -> list[tuple[nn.Module, Tensor | None]]:
    scales = cache_scales(attention)
    key, value = (None, None) if scales is None else (part.flatten() for part in scales)
    return [(attention.key, key), (attention.value, value)]


class EncoderGraph(Graph):
    """Source words to the keys and values that each decoder layer attends to."""

    def __init__(self, model: Transformer) -> None:
        """Packs the self-attentions of the encoder."""
        super().__init__(model)
        self.source_projections = _packed(model.encoder_layers)
        self.memory_projections = cast(
            Sequence[MemoryProjection],
            nn.ModuleList(
                MemoryProjection(projection, scale)
                for layer in model.decoder_layers
                for projection, scale in _kept(layer.cross_attention)
            ),
        )

    def forward(
        self,
        source: Tensor,
        positions: Tensor,
        source_lengths: Tensor,
        pad_index: Tensor,
        unpad_index: Tensor,
    ) -> tuple[Tensor, ...]:
        """Encodes sources of any lengths, which lie one after the other.

        Projections see T words and no padding; only attention sees a padded batch.

        Args:
            source: int64 ``[T]``.
            positions: Of each word in its source, int64 ``[T]``.
            source_lengths: int32 ``[B]``.
            pad_index: The word at each place of a padded batch, int64 ``[B, S]``; places after the
                end of a source hold its last word.
            unpad_index: The place of each word in the padded batch, int64 ``[T]``.

        Returns:
            For each decoder layer the key of the memory ``[T, W]`` and those of each source's last
            word ``[B, 1, W]``, then both of the value.
        """
        x = self.embed(self.model.source_embedding, source)  # [T, W]
        scheme = self.model.encoder_positions
        if isinstance(scheme, SinusoidalPositions | LearnedPositions):
            x = x + F.embedding(positions, scheme.table)
        for number, layer in enumerate(self.model.encoder_layers):
            x = layer(x, partial(self._attend, number, source_lengths, pad_index, unpad_index))
        memory = self.model.encoder_norm(x)  # [T, W]
        ends = pad_index[:, -1:]  # [B, 1]
        outputs: list[Tensor] = []
        for project in self.memory_projections:
            kept = project(memory)  # [T, W]
            outputs += [kept, project.whole(F.embedding(ends, kept))]
        return tuple(outputs)

    def _attend(
        self, number: int, lengths: Tensor, pad_index: Tensor, unpad_index: Tensor, x: Tensor
    ) -> Tensor:
        attention = self.model.encoder_layers[number].self_attention
        if self.model.encoder_positions.needs_weights:
            padded = self._weigh(number, lengths, F.embedding(pad_index, x))  # [B, S, W]
            return F.embedding(unpad_index, padded.flatten(0, 1))
        joint = F.embedding(pad_index, self.source_projections[number](x))  # [B, S, 3W]
        heads = self._attend_padded(number, lengths, joint)  # [B, S, W]
        return attention.output(F.embedding(unpad_index, heads.flatten(0, 1)))  # type: ignore[no-any-return]

    def _attend_padded(self, number: int, lengths: Tensor, joint: Tensor) -> Tensor:
        positions, heads = self.model.encoder_positions, self.config.heads
        query, key, value = joint.chunk(3, dim=-1)
        if isinstance(positions, RotaryPositions):
            query, key = (_rotate(positions, part, heads) for part in (query, key))
        bias = positions.bias(number, _split(query, heads), 0, joint.size(1))
        if bias is not None:
            bias = bias[None]
        return operators.full_attention(query, key, value, lengths, bias, heads)

    def _weigh(self, number: int, lengths: Tensor, x: Tensor) -> Tensor:
        """Attends with torch's own attention: the operator keeps the weights to itself."""
        attention = self.model.encoder_layers[number].self_attention
        place = Place(positions=self.model.encoder_positions, layer=number, start=0)
        parts = project_self(attention, place, x)
        return attend(attention, *parts, padding_mask(lengths, x.size(1)), place, None)


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
        # The begin token is read too.
        self.capacity = model.config.max_target_length + 1
        scheme = model.config.positions
        self.biased = scheme in (PositionScheme.T5, PositionScheme.ALIBI)
        if self.biased:
            self.register_buffer("bias_table", self._bias_by_distance())
            self.bias_table: Tensor  # [H, C]

    def _bias_by_distance(self) -> Tensor:
        """Gives the bias of a key that lies 0, 1, .. tokens back, ``[H, C]``."""
        size = self.capacity
        query = torch.zeros(1, self.config.heads, 1, self.config.head_size)
        bias = self.model.decoder_positions.bias(0, query, size - 1, size)
        assert bias is not None
        return bias[:, 0].flip(-1).detach()

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        max_length: Tensor,
        source_last_index: Tensor,
        max_source_length: Tensor,
        bias_tokens: Tensor,
        bias_values: Tensor,
        return_logprobs: Tensor,
        top_k: Tensor,
        num_logits: Tensor,
        allowed_tokens: Tensor,
        projected_rows: Tensor,
        caches: list[list[Tensor]],
    ) -> tuple[Tensor, ...]:
        """Advances every row by one word.

        Args:
            tokens: Last word of each row, int64 ``[B, 1]``.
            lengths: Words of each row already in its cache, int32 ``[B]``.
            max_length: Length of the longest row after this step, at least 2; int32 ``[1]``.
            source_last_index: Index of each row's last source word, int32 ``[B]``.
            max_source_length: Length of the longest source, at least 2; int32 ``[1]``.
            bias_tokens: Words whose logits are changed, int64 ``[P, A]``.
            bias_values: What is added to them, ``[P, A]``.
            return_logprobs: Whether to compute log-probabilities, bool ``[]``; zeros otherwise.
            top_k: Its length K is the number of top tokens to list, int64 ``[K]``; may be empty.
            num_logits: Its length N is the number of logits to return, from token 0 on, int64
                ``[N]``; may be empty.
            allowed_tokens: Tokens whose logits alone to return, in groups, int64 ``[G, 64]``; see
                :func:`project_some`. May be empty.
            projected_rows: Rows to project onto the whole vocabulary, int64 ``[P]``; may be empty.
                Every output with an axis P is of these rows, in this order.
            caches: For each layer: self key, self value ``[B, H, C, D]``, cross key, cross value
                ``[B, H, S, D]``, and the cross key and value of the last source word ``[B, 1, W]``.

        Returns:
            Next word int64 ``[P, 1]``, its log-probability ``[P]``, the best words int64
            ``[P, K]``, best first, their log-probabilities ``[P, K]``, logits ``[P, N]``, logits of
            the words allowed_tokens, unchanged, ``[B, G, 64]``, then the four caches of each layer.
        """
        x = self._embed_step(tokens, lengths)
        updated: list[Tensor] = []
        for number, layer in enumerate(self.model.decoder_layers):
            own_key, own_value, key, value, last_key, last_value = caches[number]
            attend_target = partial(
                self._attend_target, number, (own_key, own_value), lengths, max_length
            )
            attend_memory = partial(
                self._attend_memory,
                number,
                (key, value),
                (last_key, last_value),
                source_last_index,
                max_source_length,
            )
            x = layer(x, partial(attend_target, updated), partial(attend_memory, updated))
        features = self.model.decoder_norm(x)
        if not self.flat:
            features = features.squeeze(1)  # [B, W]
        some = project_some(self.model.output_projection, features, allowed_tokens)
        logits = self.model.project(F.embedding(projected_rows, features))  # [P, V]
        logits = operators.add_at(logits, bias_tokens, bias_values)
        word = operators.argmax(logits)  # [P, 1]
        listed = operators.log_softmax(logits, word, top_k, return_logprobs)
        return word, *listed, logits[:, : num_logits.size(0)], some, *updated

    def _embed_step(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        if self.flat:
            tokens = tokens.squeeze(1)
        else:
            lengths = lengths[:, None]
        x = self.embed(self.model.target_embedding, tokens)  # [B, W], or [B, 1, W]
        scheme = self.model.decoder_positions
        if isinstance(scheme, SinusoidalPositions | LearnedPositions):
            return x + F.embedding(lengths, scheme.table)
        return x

    def _as_step(self, x: Tensor) -> Tensor:
        return x[:, None] if self.flat else x  # [B, 1, W], as attention wants it

    def _as_rows(self, x: Tensor) -> Tensor:
        return x.squeeze(1) if self.flat else x

    def _attend_target(
        self,
        number: int,
        cache: tuple[Tensor, Tensor],
        lengths: Tensor,
        max_length: Tensor,
        updated: list[Tensor],
        x: Tensor,
    ) -> Tensor:
        attention = self.model.decoder_layers[number].self_attention
        scheme = self.model.decoder_positions
        joint = self._as_step(self.target_projections[number](x))  # [B, 1, 3W]
        heads, *caches = operators.cached_attention(
            joint,
            None,
            None,
            cache,
            lengths,
            max_length,
            self.config.heads,
            bias=self._bias(number, joint, lengths, max_length),
            rotary=(scheme.cosine, scheme.sine) if isinstance(scheme, RotaryPositions) else None,
            scales=cache_scales(attention),
            weighed=scheme.needs_weights,
        )
        updated += caches[:2]
        if isinstance(scheme, RelativePositions):
            heads = heads + self._average(scheme.averages[number], caches[2], lengths, max_length)
        return attention.output(self._as_rows(heads))  # type: ignore[no-any-return]

    def _attend_memory(
        self,
        number: int,
        cache: tuple[Tensor, Tensor],
        last: tuple[Tensor, Tensor],
        source_last_index: Tensor,
        max_source_length: Tensor,
        updated: list[Tensor],
        x: Tensor,
    ) -> Tensor:
        attention = self.model.decoder_layers[number].cross_attention
        # The operator must write something: it writes the last source word where it already is.
        heads, *caches = operators.cached_attention(
            self._as_step(attention.query(x)),
            *last,
            cache,
            source_last_index,
            max_source_length,
            self.config.heads,
            scales=cache_scales(attention),
        )
        updated += caches
        return attention.output(self._as_rows(heads))  # type: ignore[no-any-return]

    def _bias(
        self, number: int, joint: Tensor, lengths: Tensor, max_length: Tensor
    ) -> Tensor | None:
        """Gives what a scheme adds to the logits of keys, ``[B, H, 1, K]``."""
        scheme = self.model.decoder_positions
        if isinstance(scheme, RelativePositions):
            query = _split(joint[..., : self.config.width], self.config.heads)  # [B, H, 1, D]
            products = query @ scheme.keys[number].transpose(-2, -1)  # [B, H, 1, 2R + 1]
            index = self._index(scheme, lengths)[:, None, None].expand(*products.shape[:3], -1)
            bias = products.gather(-1, index) / math.sqrt(self.config.head_size)
        elif self.biased:
            back = (lengths.long()[:, None] - torch.arange(self.capacity)).clamp(min=0)  # [B, C]
            bias = self.bias_table.t()[back].permute(0, 2, 1)[:, :, None]  # [B, H, 1, C]
        else:
            return None
        return operators.first(bias, max_length)

    def _average(
        self, table: Tensor, weights: Tensor, lengths: Tensor, max_length: Tensor
    ) -> Tensor:
        """Averages vectors ``[H, 2R + 1, D]`` by the weights of their distances, ``[B, 1, W]``."""
        scheme = cast(RelativePositions, self.model.decoder_positions)
        index = operators.first(self._index(scheme, lengths), max_length)  # [B, K]
        index = index[:, None, None].expand(-1, self.config.heads, 1, -1)
        # What lies past a row's own length was never written.
        held = operators.first(
            torch.arange(self.capacity) <= lengths[:, None], max_length
        )  # [B, K]
        weights = weights.where(held[:, None, None], 0.0)
        nothing = weights.new_zeros(*weights.shape[:3], table.size(1))
        by_distance = operators.add_at(nothing, index, weights)  # [B, H, 1, 2R + 1]
        return (by_distance @ table).transpose(1, 2).flatten(2)

    def _index(self, scheme: RelativePositions, lengths: Tensor) -> Tensor:
        """Numbers the clipped distance of each key that a cache could hold, ``[B, C]``."""
        distance = torch.arange(self.capacity) - lengths.long()[:, None]
        return distance.clamp(-scheme.distance, scheme.distance) + scheme.distance


class ScorerGraph(nn.Module):
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
        logits = torch.log_softmax(logits, -1).gather(2, target[:, 1:, None]).squeeze(2)
        weights = (record.encoder, record.decoder, record.cross)
        return (logits, *(torch.stack(layers) for layers in weights))  # type: ignore[return-value]
