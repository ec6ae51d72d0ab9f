"""Operators of ONNX Runtime that torch has no name for, to be used inside modules for export.

Each function stands for one node of the exported graph; run eagerly it gives zeros of the right
shape. Why these operators and not others was measured: see docs/architecture.md.

Source: ONNX Runtime, docs/ContribOperators.md; ONNX operator specifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.onnx.ops import symbolic, symbolic_multi_out

_AFTER_SOFTMAX = 2
"""Which of its products GroupQueryAttention gives out."""


def _one(
    name: str, inputs: Sequence[Tensor | None], like: Tensor, shape: Any, **attrs: Any
) -> Tensor:
    return symbolic(name, inputs, attrs, dtype=like.dtype, shape=shape, version=_version(name))


def _version(name: str) -> int | None:
    return 1 if name.startswith("com.microsoft") else None


def full_attention(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, bias: Tensor | None, heads: int
) -> Tensor:
    """Attends from every query to all keys below each row's length.

    Args:
        query: ``[B, Q, W]``.
        key: ``[B, K, W]``.
        value: ``[B, K, W]``.
        lengths: Keys of each row, int32 ``[B]``.
        bias: Added to the scores, ``[1, H, Q, K]``.
        heads: H.

    Returns:
        ``[B, Q, W]``.
    """
    return _one(
        "com.microsoft::MultiHeadAttention",
        [query, key, value, None, lengths, bias],
        query,
        query.shape,
        num_heads=heads,
    )


def cached_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    cache: tuple[Tensor, Tensor],
    last: Tensor,
    longest: Tensor,
    heads: int,
    *,
    bias: Tensor | None = None,
    rotary: tuple[Tensor, Tensor] | None = None,
    scales: tuple[Tensor, Tensor] | None = None,
    weighed: bool = False,
) -> tuple[Tensor, ...]:
    """Writes one new key and value into each row's cache and attends to what the row then holds.

    Only a row's own length is paid for, whatever the cache could hold, and nothing of one row
    depends on another. The caches are updated in place when the caller binds each to both ends.

    Args:
        query: ``[B, 1, W]``; or ``[B, 1, 3W]``, query, key and value packed, where key is None.
        key: ``[B, 1, W]``.
        value: ``[B, 1, W]``.
        cache: Keys and values, ``[B, H, C, D]`` each, where C is what the cache could hold.
        last: Where each row's new key goes, which is its length before; int32 ``[B]``.
        longest: Longest row after writing, at least 2; int32 ``[1]``.
        heads: H.
        bias: Added to the scores, ``[B, H, 1, K]``.
        rotary: Cosines and sines ``[C, D / 2]`` by which packed queries and keys are turned.
        scales: Of each channel of keys and values, ``[1, H, 1, D]``, where the cache is int8.
        weighed: Whether to give the attention weights too.

    Returns:
        Heads ``[B, 1, W]``, both caches and, where asked for, weights ``[B, H, 1, K]``.
    """
    width = heads * cache[0].size(-1)
    cosine, sine = rotary or (None, None)
    inputs = [query, key, value, *cache, last, longest, cosine, sine, None, bias]
    attributes: dict[str, Any] = {
        "num_heads": heads,
        "kv_num_heads": heads,
        "do_rotary": int(rotary is not None),
    }
    if scales is not None:
        inputs += [None, *scales]
        attributes |= {
            "k_quant_type": "PER_CHANNEL",
            "v_quant_type": "PER_CHANNEL",
            "kv_cache_bit_width": 8,
        }
    dtypes = [query.dtype, cache[0].dtype, cache[1].dtype]
    shapes: list[Any] = [(query.size(0), 1, width), cache[0].shape, cache[1].shape]
    if weighed:
        attributes["qk_output"] = _AFTER_SOFTMAX
        dtypes.append(query.dtype)
        # How many keys the longest row has is known only when it runs.
        shapes.append((query.size(0), heads, 1, cache[0].size(2)))
    name = "com.microsoft::GroupQueryAttention"
    return tuple(
        symbolic_multi_out(name, inputs, attributes, dtypes=dtypes, shapes=shapes, version=1)
    )


def add_at(scores: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Adds ``values [.., A]`` to ``scores [.., V]`` at ``index [.., A]``, in place where it can."""
    return _one(
        "ScatterElements", [scores, index, values], scores, scores.shape, axis=-1, reduction="add"
    )


def argmax(scores: Tensor) -> Tensor:
    """Finds the first index of each row's largest score, ``[B, V]`` → ``[B, 1]``.

    In two stages, which is exact: the best block by its maximum, then the best within that block.
    One ArgMax over a whole row is scalar code on the CPU and takes ten times as long.
    """
    size = block_size(scores.size(-1))
    blocks = scores.view(-1, scores.size(-1) // size, size)  # [B, V / size, size]
    # Axes are counted from the first: from the last, ONNX Runtime errs where there are no rows.
    best = blocks.amax(2).argmax(1, keepdim=True)  # [B, 1]
    within = _one(
        "GatherND", [blocks, best], scores, (scores.size(0), size), batch_dims=1
    )  # [B, size]
    return best * size + within.argmax(1, keepdim=True)


def block_size(vocabulary_size: int) -> int:
    """Chooses the block of :func:`argmax`: the divisor of the size nearest to 128, up to 512."""
    sizes = range(1, min(vocabulary_size, 512) + 1)
    divisors = [size for size in sizes if vocabulary_size % size == 0]
    return min(divisors, key=lambda size: abs(size - 128))


def log_softmax(
    scores: Tensor, word: Tensor, ranks: Tensor, asked: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gives log-probabilities under softmax(``scores [B, V]``); zeros, at no cost, unless asked.

    Args:
        scores: ``[B, V]``.
        word: int64 ``[B, 1]``.
        ranks: As long as there are best words to be listed, ``[K]``.
        asked: bool ``[]``.

    Returns:
        That of the word ``[B]``; the best words, best first, and theirs, ``[B, K]`` each.
    """
    return torch.cond(asked, _log_softmax, _zeros, (scores, word, ranks))  # type: ignore[no-any-return]


def _log_softmax(scores: Tensor, word: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    found = torch.log_softmax(scores, -1)
    best, words = torch.topk(found, ranks.size(0))
    return found.gather(1, word).squeeze(1), words, best


def _zeros(scores: Tensor, word: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, count = scores.size(0), ranks.size(0)
    return scores.new_zeros(rows), word.new_zeros(rows, count), scores.new_zeros(rows, count)


def first(x: Tensor, size: Tensor) -> Tensor:
    """Keeps the first ``size`` entries of the last axis; int32 ``[1]``, known when it runs."""
    begin, axis = torch.zeros(1, dtype=torch.int64), torch.tensor([-1])
    return _one("Slice", [x, begin, size.long(), axis], x, x.shape)


def empty_as(x: Tensor, other: Tensor) -> Tensor:
    """Gives ``x [1, ..]`` as it is, or empty, ``[0, ..]``, where ``other [N, ..]`` is.

    Products of several matrices take one for all, but not where there are none.
    """
    size = symbolic("Shape", [other], {"start": 0, "end": 1}, dtype=torch.int64, shape=(1,))
    begin = torch.zeros(1, dtype=torch.int64)
    return _one("Slice", [x, begin, size, begin], x, x.shape)


def quantize(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Rounds ``x [.., K]`` in units of ``scale []`` to integers of the zero point's type."""
    inputs = [x, scale, zero_point]
    return symbolic("QuantizeLinear", inputs, dtype=zero_point.dtype, shape=x.shape)


def integer_product(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """Multiplies integers of eight bits and scales the sums back.

    Args:
        x: uint8 ``[.., K]``.
        scale: Of x, ``[]``.
        zero_point: Of x, uint8 ``[]``.
        weight: int8 ``[K, N]``, or several, ``[G, K, N]``.
        weight_scale: ``[N]``, or ``[G, 1, N]``.
        bias: ``[N]``.

    Returns:
        ``[.., N]``; where there are several weights, of each ``[G, .., N]``.
    """
    return _one(
        "com.microsoft::MatMulIntegerToFloat",
        [x, weight, scale, weight_scale, zero_point, None, bias],
        weight_scale,
        _product_shape(x, weight),
    )


def grouped_product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiplies rows ``[1, B, K]`` with the channels ``[C, K]`` of each group, ``[G, C, K]``.

    Returns:
        ``[G, B, C]``.
    """
    # A factor of one would send a lone row to a kernel that adds up in another order.
    return _one(
        "com.microsoft::FusedMatMul",
        [-x, weight],
        x,
        _product_shape(x, weight.transpose(1, 2)),
        transB=1,
        alpha=-1.0,
    )


def _product_shape(x: Tensor, weight: Tensor) -> tuple[Any, ...]:
    return (*(weight.shape[:-2] or x.shape[:-2]), x.size(-2), weight.size(-1))
