"""Attention weights of every layer and head, for one source and its target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from seqserve import notebook
from seqserve.heat_map import HeatMap

Rows = list[list[float]]
"""Weights of one head ``[queries, keys]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWeights:
    """Weights of all layers and heads; their indices start at 0, negative ones at the end.

    Example::

        rows = client.attention("The coffee tastes good.").cross.of(layer=-1, head=0)
    """

    layers: int
    """Number of layers."""
    heads: int
    """Number of heads in each layer."""
    queries: int
    """Number of tokens that attend."""
    keys: int
    """Number of tokens attended to."""
    weights: tuple[float, ...]
    """``[layers, heads, queries, keys]``, flattened."""

    def of(self, layer: int, head: int) -> Rows:
        """Returns the weights of one head; each row sums to 1.

        Raises:
            IndexError: There is no such layer or head.
        """
        layer = _index("layer", layer, self.layers)
        head = _index("head", head, self.heads)
        start = (layer * self.heads + head) * self.queries * self.keys
        return [
            list(self.weights[start + query * self.keys : start + (query + 1) * self.keys])
            for query in range(self.queries)
        ]

    def mean(self, layer: int = -1) -> Rows:
        """Returns the mean over the heads of a layer, by default the last.

        Raises:
            IndexError: There is no such layer.
        """
        heads = [self.of(layer, head) for head in range(self.heads)]
        return [
            [sum(weights) / self.heads for weights in zip(*rows, strict=True)]
            for rows in zip(*heads, strict=True)
        ]


class Kind(Enum):
    """The attention layers of a model."""

    CROSS = "cross"
    """Target tokens to source tokens."""
    ENCODER = "encoder"
    """Source tokens to source tokens."""
    DECODER = "decoder"
    """Target tokens to the target tokens before them; recurrent decoders have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionResult:
    """Attention weights of every layer and head."""

    model: str
    """Name of the model that answered."""
    version: int
    """Version of the model that answered."""
    source_tokens: tuple[str, ...]
    """The tokens of the source as the tokenizer writes them, the end token last."""
    target_tokens: tuple[str, ...]
    """The tokens of the target, the end token last."""
    encoder: AttentionWeights
    """Source tokens to source tokens, in the encoder."""
    decoder: AttentionWeights
    """Target tokens to the begin token and the target tokens before them, in the decoder.

    It has no layers where the decoder is recurrent (SSRU) and so attends to the source alone.
    """
    cross: AttentionWeights
    """Target tokens to source tokens."""

    def _repr_html_(self) -> str:
        """Draws the attention in a notebook: the mean over the heads of the last layer."""
        return notebook.page(self._html())

    def _html(self) -> Iterator[str]:
        for kind in Kind:
            rows, columns, weights = parts_of(self, kind)
            if weights.layers:
                drawing = HeatMap(weights.mean(), rows, columns)
                if kind is Kind.CROSS:
                    yield drawing.html("Target tokens to source tokens")
                else:
                    yield notebook.folded(kind.value.capitalize(), drawing.html())
        model = f"{self.model}/{self.version}"
        yield notebook.note(f"{model}, mean over the heads of the last layer")


def parts_of(
    result: AttentionResult, kind: Kind
) -> tuple[tuple[str, ...], tuple[str, ...], AttentionWeights]:
    """Returns the tokens of the rows and of the columns of one kind, and its weights."""
    source, target = result.source_tokens, result.target_tokens
    if kind is Kind.CROSS:
        return target, source, result.cross
    if kind is Kind.ENCODER:
        return source, source, result.encoder
    return target, ("(begin)", *target[:-1]), result.decoder


def _index(name: str, index: int, total: int) -> int:
    if not -total <= index < total:
        raise IndexError(f"there is no {name} {index}: there are {total}")
    return index % total
