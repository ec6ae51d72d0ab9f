"""What a model attended to: the weights of every layer and head, for one source and its target."""

from __future__ import annotations

from dataclasses import dataclass

Rows = list[list[float]]
"""One row a token that attends, one weight a token that is attended to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWeights:
    """Weights of all layers and heads; layers and heads count from 0, negative ones from the end.

    Example::

        rows = client.attention("The coffee tastes good.").cross.of(layer=-1, head=0)
    """

    layers: int
    """Layers."""
    heads: int
    """Heads of each layer."""
    queries: int
    """Tokens that attend."""
    keys: int
    """Tokens that are attended to."""
    weights: tuple[float, ...]
    """In the order of layer, head, query and key, the last changing fastest."""

    def of(self, layer: int, head: int) -> Rows:
        """Gives the weights of one head; those of a row sum to 1.

        Raises:
            IndexError: There is no such layer or head.
        """
        layer = _counted("layer", layer, self.layers)
        head = _counted("head", head, self.heads)
        start = (layer * self.heads + head) * self.queries * self.keys
        return [
            list(self.weights[start + query * self.keys : start + (query + 1) * self.keys])
            for query in range(self.queries)
        ]

    def mean(self, layer: int = -1) -> Rows:
        """Gives the mean over the heads of a layer, the last where not said.

        Raises:
            IndexError: There is no such layer.
        """
        heads = [self.of(layer, head) for head in range(self.heads)]
        return [
            [sum(weights) / self.heads for weights in zip(*rows, strict=True)]
            for rows in zip(*heads, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionResult:
    """What every layer and head attended to."""

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
    """Target tokens to the begin token and the target tokens before them, in the decoder."""
    cross: AttentionWeights
    """Target tokens to source tokens."""


def _counted(name: str, number: int, total: int) -> int:
    if not -total <= number < total:
        raise IndexError(f"there is no {name} {number}: there are {total}")
    return number % total
