"""The graphs that run once: the encoder, and the scorer of a known target."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_export import operators
from seqserve_export.graphs import cross_projections, qkv_projections
from seqserve_model.attention import padding_mask, split_heads
from seqserve_model.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
from seqserve_model.transformer import AttentionRecord, Place, Transformer, attend, project_self


class EncoderGraph(nn.Module):
    """Encodes a batch of concatenated sources, without padding."""

    def __init__(self, model: Transformer) -> None:
        """Joins the projections of each self-attention."""
        super().__init__()
        self.model = model
        self.source_projections = qkv_projections(model.encoder_layers)
        self.cross_projections = cross_projections(model.decoder_layers)

    def forward(
        self,
        source: Tensor,
        positions: Tensor,
        source_lengths: Tensor,
        pad_index: Tensor,
        unpad_index: Tensor,
    ) -> tuple[Tensor, ...]:
        """Encodes sources: projections run over T tokens, only attention over a padded batch.

        Args:
            source: Token ids, int64 ``[T]``.
            positions: Position of each token in its source, int64 ``[T]``.
            source_lengths: int32 ``[B]``.
            pad_index: Index into ``source`` of each entry of a padded batch, int64 ``[B, S]``;
                padding repeats the last token of its source.
            unpad_index: Index into the flattened padded batch of each token, int64 ``[T]``.

        Returns:
            For each decoder layer the cross key ``[T, A]`` and the cross key of each source's last
            token ``[B, 1, A]``, then both of the cross value.
        """
        x = self.model.embed_tokens(self.model.source_embedding, source)  # [T, W]
        scheme = self.model.encoder_positions
        if isinstance(scheme, SinusoidalPositions | LearnedPositions):
            x = x + F.embedding(positions, scheme.table)
        x = self.model.encoder_embedding_norm(x)
        for index, layer in enumerate(self.model.encoder_layers):
            x = layer(x, partial(self._attend, index, source_lengths, pad_index, unpad_index))
        memory = self.model.encoder_norm(x)  # [T, W]
        last_index = pad_index[:, -1:]  # [B, 1]
        outputs: list[Tensor] = []
        for project in self.cross_projections:
            cached = project(memory)  # [T, A]
            outputs += [cached, project.dequantized(F.embedding(last_index, cached))]
        return tuple(outputs)

    def _attend(
        self, layer: int, lengths: Tensor, pad_index: Tensor, unpad_index: Tensor, x: Tensor
    ) -> Tensor:
        attention = self.model.encoder_layers[layer].self_attention
        if self.model.encoder_positions.needs_weights:
            padded = self._attend_by_weights(layer, lengths, F.embedding(pad_index, x))
            return F.embedding(unpad_index, padded.flatten(0, 1))
        parts = _padded(self.source_projections[layer](x), pad_index)
        heads = self._attend_padded(layer, lengths, *parts)  # [B, S, A]
        return attention.output(F.embedding(unpad_index, heads.flatten(0, 1)))  # type: ignore[no-any-return]

    def _attend_padded(
        self, layer: int, lengths: Tensor, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        positions, heads = self.model.encoder_positions, self.model.config.heads
        if isinstance(positions, RotaryPositions):
            query, key = (_rotate(positions, part, heads) for part in (query, key))
        bias = positions.bias(layer, split_heads(query, heads), 0, query.size(1))
        if bias is not None:
            bias = bias[None]
        return operators.full_attention(query, key, value, lengths, bias, heads)

    def _attend_by_weights(self, layer: int, lengths: Tensor, x: Tensor) -> Tensor:
        """Attends with torch's attention, because the operator does not return its weights."""
        attention = self.model.encoder_layers[layer].self_attention
        place = Place(positions=self.model.encoder_positions, layer=layer, start=0)
        parts = project_self(attention, place, x)
        return attend(attention, *parts, padding_mask(lengths, x.size(1)), place, None)


def _padded(qkv: Tensor, pad_index: Tensor) -> Sequence[Tensor]:
    """Pads queries, keys and values, packed as ``[T, 3A]``, to ``[B, S, A]`` each."""
    if qkv.dtype is torch.float16:  # for CUDA, where a server takes this form of padding away
        return F.embedding(pad_index, qkv).chunk(3, dim=-1)
    # Three times as many rows, so that padding divides them as well: a tenth of an encoding less.
    rows = qkv.view(-1, qkv.size(1) // 3)  # [3T, A]
    return [F.embedding(pad_index * 3 + part, rows) for part in range(3)]


def _rotate(positions: RotaryPositions, x: Tensor, heads: int) -> Tensor:
    return positions.rotate(split_heads(x, heads), 0).transpose(1, 2).flatten(2)  # [B, S, A]


class ScorerGraph(nn.Module):
    """Scores known targets by forced decoding."""

    def __init__(self, model: Transformer) -> None:
        """Takes the model as it is: its own attentions return the weights."""
        super().__init__()
        self.model = model

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores targets of sources ``[B, S]``, whose lengths are int32 ``[B]``.

        ``target``, int64 ``[B, T + 1]``, is the begin token, then the tokens to score.

        Returns:
            Log-probabilities ``[B, T]`` of the tokens, and the attention weights of encoder
            ``[L, B, H, S, S]``, decoder ``[L, B, H, T, T]`` and cross ``[L, B, H, T, S]``. Row t
            of the last two belongs to the step that chose token t. A recurrent decoder has no
            self-attention: ``[0, B, H, T, T]``.
        """
        record = AttentionRecord()
        memory = self.model.encode(source, source_lengths, record)
        state = self.model.begin(memory, source_lengths)
        logits = self.model.project(self.model.advance(target[:, :-1], state, record))
        logprobs = torch.log_softmax(logits, -1).gather(2, target[:, 1:, None]).squeeze(2)
        encoder, cross = _stacked(record.encoder), _stacked(record.cross)
        if record.decoder:
            return logprobs, encoder, _stacked(record.decoder), cross
        batch, heads, length, _ = record.cross[0].shape
        return logprobs, encoder, cross.new_zeros(0, batch, heads, length, length), cross


def _stacked(weights: list[Tensor]) -> Tensor:
    """Stacks the weights of all layers, in fp32 at any precision."""
    return torch.stack(weights).float()
