"""Position schemes: eight ways to encode the order of tokens, with one interface.

========== ========================================== ==============================================
scheme     where it acts                              source
========== ========================================== ==============================================
sinusoidal added to the embeddings                    Vaswani et al. 2017, §3.5
marian     added to the embeddings                    Junczys-Dowmunt et al. 2018
learned    added to the embeddings                    Gehring et al. 2017; Vaswani et al. 2017, §3.5
relative   added to keys and values, by distance      Shaw et al. 2018, §3.2
t5         added to the logits, by bucketed distance  Raffel et al. 2020, §2.1
t5-layers  as t5, for each layer its own              Chung et al. 2023 (umT5)
rotary     turns queries and keys                     Su et al. 2021, §3.2
alibi      added to the logits, falls with distance   Press et al. 2022, §3
========== ========================================== ==============================================

One object serves all layers of one stack (encoder or decoder). A block of new queries begins at
``start``, and keys always begin at 0, so a cached decoder makes the same calls as a full pass.
Distances are key position minus query position: the past is negative.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from seqserve.errors import SeqserveError
from seqserve_model.config import DecoderCell, PositionScheme, TransformerConfig


class Positions(nn.Module):
    """The interface, and the scheme that does nothing."""

    needs_weights = False
    """Whether the scheme changes the values too and so must see the attention weights."""

    def embed(self, x: Tensor, start: int) -> Tensor:
        """Marks embeddings ``[B, T, W]`` whose first token is at ``start``."""
        return x

    def rotate(self, heads: Tensor, start: int) -> Tensor:
        """Marks queries or keys ``[B, H, T, D]`` whose first token is at ``start``."""
        return heads

    def bias(self, layer: int, query: Tensor, start: int, keys: int) -> Tensor | None:
        """Returns the term ``[.., H, Q, K]`` of the logits of queries ``[B, H, Q, D]``."""
        return None

    def values(self, layer: int, weights: Tensor, start: int) -> Tensor | None:
        """Returns what weights ``[B, H, Q, K]`` add to the averaged values: ``[B, H, Q, D]``."""
        return None


class PositionError(SeqserveError):
    """A sequence is longer than the model has positions for."""


def rows(table: Tensor, start: int, count: int) -> Tensor:
    """Cuts the rows of positions ``start`` to ``start + count`` out of a table, ``[count, ..]``.

    Raises:
        PositionError: The table ends before; a slice would be short and torch might broadcast it.
    """
    if start + count > table.size(0):
        raise PositionError(
            f"position {start + count - 1} is past the last one, {table.size(0) - 1}; shorten the "
            "sequence or raise model.max_source_length or model.max_target_length"
        )
    return table[start : start + count]


def sinusoids(length: int, width: int) -> Tensor:
    """Computes the table of sines (even columns) and cosines (odd columns), ``[length, width]``."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    columns = torch.arange(0, width, 2, dtype=torch.float64)
    angle = position / 10_000 ** (columns / width)  # [length, ceil(W / 2)]
    table = torch.zeros(length, width)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : width // 2]
    return table


def marian_sinusoids(length: int, width: int) -> Tensor:
    """Computes Marian's table, ``[length, width]``: all sines, then all cosines.

    The longest wavelength is 10,000 times the shortest; in the paper it is a bit less. Source:
    SinusoidalPositionEmbeddings in Marian's src/tensors/cpu/tensor_operators.cpp.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    column = torch.arange(width // 2, dtype=torch.float64)
    angle = position / 10_000 ** (column / (width // 2 - 1))  # [length, W / 2]
    return torch.cat((angle.sin(), angle.cos()), dim=1).to(torch.get_default_dtype())


class SinusoidalPositions(Positions):
    """A fixed wave for each dimension, added to the embeddings."""

    def __init__(self, table: Tensor) -> None:
        """Stores the waves ``[length, W]``; they are not parameters and are not saved."""
        super().__init__()
        self.register_buffer("table", table, persistent=False)
        self.table: Tensor  # [length, W]

    def embed(self, x: Tensor, start: int) -> Tensor:
        """Adds the rows of the table."""
        return x + rows(self.table, start, x.size(1))


class LearnedPositions(Positions):
    """A trained vector for each position, added to the embeddings."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, width) * 0.02)  # [length, W]

    def embed(self, x: Tensor, start: int) -> Tensor:
        """Adds the rows of the table."""
        return x + rows(self.table, start, x.size(1))


def distances(queries: int, keys: int, start: int, device: torch.device | None = None) -> Tensor:
    """Computes key position minus query position, ``[Q, K]``."""
    query_positions = torch.arange(start, start + queries, device=device)
    return torch.arange(keys, device=device) - query_positions[:, None]


class RelativePositions(Positions):
    """A trained vector for each clipped distance, added to keys and to values.

    Each layer and head has its own vectors, as in the paper's base model. The product of a query
    with a distance's vector is taken once per distance and then looked up (§3.3).
    """

    needs_weights = True

    def __init__(self, layers: int, heads: int, head_size: int, distance: int) -> None:
        """Begins with small random vectors for the distances -distance to +distance."""
        super().__init__()
        shape = (layers, heads, 2 * distance + 1, head_size)
        self.distance = distance
        self.keys = nn.Parameter(torch.randn(shape) * head_size**-0.5)  # [L, H, 2R + 1, D]
        self.averages = nn.Parameter(torch.randn(shape) * head_size**-0.5)  # [L, H, 2R + 1, D]

    def _index(self, queries: int, keys: int, start: int, device: torch.device) -> Tensor:
        distance = distances(queries, keys, start, device)
        return distance.clamp(-self.distance, self.distance) + self.distance  # [Q, K]

    def bias(self, layer: int, query: Tensor, start: int, keys: int) -> Tensor:
        """Adds query·aᴷ / √D for the distance of each key (equation 4)."""
        products = query @ self.keys[layer].transpose(-2, -1) / math.sqrt(query.size(-1))
        index = self._index(query.size(2), keys, start, query.device)
        return products.gather(-1, index.expand(*products.shape[:2], -1, -1))  # [B, H, Q, K]

    def values(self, layer: int, weights: Tensor, start: int) -> Tensor:
        """Adds aⱽ of each key's distance, weighted like the key's value (equation 3)."""
        index = self._index(weights.size(2), weights.size(3), start, weights.device)
        table = self.averages[layer]  # [H, 2R + 1, D]
        by_distance = weights.new_zeros(*weights.shape[:3], table.size(1))
        by_distance = by_distance.scatter_add(-1, index.expand_as(weights), weights)
        return by_distance @ table  # [B, H, Q, D]


class T5Positions(Positions):
    """A trained number for each head and bucket of distances, added to the attention logits.

    Half of the buckets hold exact distances, the other half grow geometrically up to ``distance``.
    The encoder looks both ways, the decoder only back.
    """

    def __init__(self, heads: int, buckets: int, distance: int, *, causal: bool) -> None:
        super().__init__()
        self.buckets, self.distance, self.causal = buckets, distance, causal
        self.table = nn.Parameter(torch.randn(buckets, heads) * 0.02)  # [buckets, H]

    def bucket(self, distance: Tensor) -> Tensor:
        """Numbers the bucket of each distance; same shape."""
        buckets = self.buckets if self.causal else self.buckets // 2
        first = 0 if self.causal else (distance > 0).long() * buckets
        size = (-distance).clamp(min=0) if self.causal else distance.abs()
        exact = buckets // 2
        growth = torch.log(size.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        far = exact + (growth * (buckets - exact)).long()
        return first + torch.where(size < exact, size, far.clamp(max=buckets - 1))

    def bias(self, layer: int, query: Tensor, start: int, keys: int) -> Tensor:
        """Looks up the number of each distance's bucket."""
        distance = distances(query.size(2), keys, start, query.device)
        return self.table[self.bucket(distance)].permute(2, 0, 1)  # [H, Q, K]


class T5LayerPositions(Positions):
    """As :class:`T5Positions`, but with separate numbers for each layer."""

    def __init__(self, layers: int, heads: int, buckets: int, distance: int, *, causal: bool):
        super().__init__()
        self.of_layers = nn.ModuleList(
            T5Positions(heads, buckets, distance, causal=causal) for _ in range(layers)
        )

    def bias(self, layer: int, query: Tensor, start: int, keys: int) -> Tensor:
        """Looks up the number of each distance's bucket."""
        positions = cast("T5Positions", self.of_layers[layer])
        return positions.bias(layer, query, start, keys)  # [H, Q, K]


class RotaryPositions(Positions):
    """Turns each pair of a head's dimensions by an angle that grows with the position.

    Dimensions i and i + D/2 make a pair, the layout of today's checkpoints.
    """

    def __init__(self, length: int, head_size: int, base: float) -> None:
        """Computes the angles once; they are not parameters and are not saved."""
        super().__init__()
        frequency = base ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        self.register_buffer("cosine", angle.cos().to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sine", angle.sin().to(torch.get_default_dtype()), persistent=False)
        self.cosine: Tensor  # [length, D / 2]
        self.sine: Tensor  # [length, D / 2]

    def rotate(self, heads: Tensor, start: int) -> Tensor:
        """Turns queries or keys (equation 34)."""
        cosine = rows(self.cosine, start, heads.size(2))
        sine = rows(self.sine, start, heads.size(2))
        first, second = heads.chunk(2, dim=-1)  # [B, H, T, D / 2]
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def alibi_slopes(heads: int) -> Tensor:
    """Returns the slope of each head, ``[H]``: 2^(-8i/H), as the paper's code does for any H."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-8 * (i + 0.5) / power) for i in range(heads - power)]
    return torch.tensor(slopes + between)


class AlibiPositions(Positions):
    """Lowers the attention logits in proportion to the distance, at a slope of each head's own.

    The encoder looks both ways, so there the fall is the same to either side, as the authors advise
    for translation. Then only its end token distinguishes a source from its mirror image.
    """

    def __init__(self, heads: int) -> None:
        """Computes the slopes; they are not parameters and are not saved."""
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(heads), persistent=False)
        self.slopes: Tensor  # [H]

    def bias(self, layer: int, query: Tensor, start: int, keys: int) -> Tensor:
        """Returns minus slope times distance."""
        distance = distances(query.size(2), keys, start, query.device).abs()
        return -self.slopes[:, None, None] * distance  # [H, Q, K]


def make_positions(config: TransformerConfig, *, layers: int, causal: bool) -> Positions:
    """Makes the positions of one stack of L layers; ``causal`` if it is the decoder's.

    Schemes that act in self-attention do nothing in a decoder that has none.
    """
    # The decoder reads the begin token before the longest target, hence one more.
    length = max(config.max_source_length, config.max_target_length) + 1
    match config.positions:
        case PositionScheme.SINUSOIDAL:
            return SinusoidalPositions(sinusoids(length, config.width))
        case PositionScheme.MARIAN:
            return SinusoidalPositions(marian_sinusoids(length, config.width))
        case PositionScheme.LEARNED:
            return LearnedPositions(length, config.width)
        case _ if causal and config.decoder_cell is DecoderCell.SSRU:
            return Positions()
        case PositionScheme.RELATIVE:
            return RelativePositions(
                layers, config.heads, config.head_size, config.relative_distance
            )
        case PositionScheme.T5 | PositionScheme.T5_LAYERS:
            shape = config.heads, config.relative_buckets, config.relative_bucket_distance
            if config.positions is PositionScheme.T5:
                return T5Positions(*shape, causal=causal)
            return T5LayerPositions(layers, *shape, causal=causal)
        case PositionScheme.ROTARY:
            return RotaryPositions(length, config.head_size, config.rotary_base)
        case PositionScheme.ALIBI:
            return AlibiPositions(config.heads)
