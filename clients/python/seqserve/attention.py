"""Results of looking inside a model: attention weights, scores of a target, tokens of a text."""

from dataclasses import dataclass
from enum import Enum

from seqserve import pictures

Rows = list[list[float]]
"""Weights of one head ``[queries, keys]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWeights:
    """Weights of all layers and heads; their indices start at 0, negative ones at the end.

    Example::

        rows = client.attention("The coffee tastes good.").cross.of(layer=-1, head=0)
    """

    layers: int
    heads: int
    queries: int
    """Number of tokens that attend."""
    keys: int
    """Number of tokens attended to."""
    weights: tuple[float, ...]
    """``[layers, heads, queries, keys]``, flattened."""

    def of(self, layer: int, head: int) -> Rows:
        """Returns the weights of one head; each row sums to 1."""
        layer = _index("layer", layer, self.layers)
        head = _index("head", head, self.heads)
        start = (layer * self.heads + head) * self.queries * self.keys
        return [
            list(self.weights[start + query * self.keys : start + (query + 1) * self.keys])
            for query in range(self.queries)
        ]

    def mean(self, layer: int = -1) -> Rows:
        """Returns the mean over the heads of a layer, by default the last."""
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
    version: int
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
        return pictures.page_of_attention(self, {kind: parts_of(self, kind) for kind in Kind})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """The log-probabilities of a target."""

    model: str
    version: int
    tokens: tuple[str, ...]
    """The tokens of the target as the tokenizer writes them, the end token last."""
    token_ids: tuple[int, ...]
    token_scores: tuple[float, ...]
    """The natural log-probability of each token."""
    score: float
    """Their sum."""
    normalized_score: float
    """The score divided by the number of tokens."""
    source_tokens: int
    """Number of source tokens, including the end token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeResult:
    """The tokens of a text, without those that the server adds. Offsets count characters."""

    model: str
    version: int
    tokens: tuple[str, ...]
    """The tokens as the tokenizer writes them."""
    token_ids: tuple[int, ...]
    begins: tuple[int, ...]
    """Where each begins in the text; tokens that are bytes of a character all have its place."""
    ends: tuple[int, ...]
    """Where each ends in the text."""
    length: int
    """Number of tokens that count: also the end token of a source and tokens of the model."""
    max_length: int
    """Number of tokens that may count."""


def _index(name: str, index: int, total: int) -> int:
    if not -total <= index < total:
        raise IndexError(f"there is no {name} {index}: there are {total}")
    return index % total
