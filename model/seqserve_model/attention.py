"""Attention: scaled dot products, multi-head projections, and masks that hold for every row.

Source: Vaswani et al. 2017, "Attention Is All You Need", §3.2.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Masks padding: True up to each row's length.

    Args:
        lengths: Tokens of each row, ``[B]``.
        size: K, keys of the padded batch.

    Returns:
        ``[B, 1, 1, K]``, to be broadcast over heads and queries.
    """
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None, None]  # [B, 1, 1, K]


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Masks the future: True for a query's own position and those before it.

    The last query is at the last key, so the mask also fits a block of new queries against a
    longer cache of keys.

    Returns:
        ``[Q, K]``.
    """
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(diagonal=keys - queries)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Computes softmax(query·keyᵀ / √D + bias) over the keys that the mask allows.

    A query that may see no key at all (a fully padded row) gets weights of zero, not NaN and not
    an average over padding.

    Args:
        query: ``[B, H, Q, D]``.
        key: ``[B, H, K, D]``.
        mask: True where a key may be seen; broadcast to ``[B, H, Q, K]``.
        bias: Added to the logits; broadcast to ``[B, H, Q, K]``.

    Returns:
        ``[B, H, Q, K]``; each row sums to one, or to zero where nothing may be seen.
    """
    logits = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # [B, H, Q, K]
    if bias is not None:
        logits = logits + bias
    if mask is None:
        return logits.softmax(-1)
    # The lowest number instead of -inf: a row without any key stays finite, also in its gradient.
    logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return logits.softmax(-1).masked_fill(~mask, 0.0)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Averages the values by :func:`attention_weights` (§3.2.1, equation 1).

    Torch's fused kernel does the work: it never stores the weights, and it too returns zeros for a
    query that may see no key.

    Args:
        query: ``[B, H, Q, D]``.
        key: ``[B, H, K, D]``.
        value: ``[B, H, K, D]``.
        mask: True where a key may be seen; broadcast to ``[B, H, Q, K]``.
        bias: Added to the logits; broadcast to ``[B, H, Q, K]``.
        dropout: Share of weights dropped.

    Returns:
        ``[B, H, Q, D]``.
    """
    if bias is None:
        return F.scaled_dot_product_attention(query, key, value, mask, dropout)
    if mask is not None:
        bias = bias.masked_fill(~mask, -torch.inf)
    return F.scaled_dot_product_attention(query, key, value, bias, dropout)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Splits ``[B, T, A]`` into heads ``[B, H, T, D]``."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


Rounding = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps keys and values ``[B, H, K, D]`` to the values that a cache of fewer bits would return."""


class MultiHeadAttention(nn.Module):
    """Projections of queries, keys and values into heads, and of the heads back (§3.2.2)."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        *,
        head_size: int | None = None,
        bias: bool = True,
    ) -> None:
        """Makes the four projections.

        Args:
            width: W, of input and output.
            heads: H.
            dropout: Share of attention weights dropped in training.
            head_size: D; where not given W / H, so H must divide W.
            bias: Whether the projections add a bias.
        """
        super().__init__()
        joint = heads * head_size if head_size else width
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(width, joint, bias)
        self.key = nn.Linear(width, joint, bias)
        self.value = nn.Linear(width, joint, bias)
        self.output = nn.Linear(joint, width, bias)
        self.rounding: Rounding | None = None

    def project_query(self, x: Tensor) -> Tensor:
        """Projects ``[B, Q, W]`` to queries ``[B, H, Q, D]``."""
        return split_heads(self.query(x), self.heads)

    def project_key_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Projects ``[B, K, W]`` to keys and values, ``[B, H, K, D]`` each."""
        return split_heads(self.key(x), self.heads), split_heads(self.value(x), self.heads)

    def remember(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Rounds keys and values ``[B, H, K, D]`` as the cache does, if it does."""
        return self.rounding(key, value) if self.rounding else (key, value)

    def project_output(self, heads: Tensor) -> Tensor:
        """Joins heads ``[B, H, Q, D]`` and projects them to ``[B, Q, W]``."""
        return self.output(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]
