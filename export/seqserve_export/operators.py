"""Operators of ONNX Runtime that torch does not have, for use inside modules for export.

Each function becomes one node of the exported graph; run eagerly it returns zeros of the right
shape. Measurements decided for these operators: see docs/architecture.md.

Source: ONNX Runtime, docs/ContribOperators.md; ONNX operator specifications.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.onnx.ops import symbolic, symbolic_multi_out

_AFTER_SOFTMAX = 2
"""The ``qk_output`` of GroupQueryAttention that returns attention weights."""


def _node(
    name: str, inputs: Sequence[Tensor | None], like: Tensor, shape: Any, **attrs: Any
) -> Tensor:
    version = 1 if name.startswith("com.microsoft") else None
    return symbolic(name, inputs, attrs, dtype=like.dtype, shape=shape, version=version)


def full_attention(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, bias: Tensor | None, heads: int
) -> Tensor:
    """Attends from every query ``[B, Q, A]`` to all keys below each row's length.

    Args:
        query: ``[B, Q, A]``, the shape of the result.
        key: ``[B, K, A]``.
        value: ``[B, K, A]``.
        lengths: Keys of each row, int32 ``[B]``.
        bias: Added to the attention logits, ``[1, H, Q, K]``.
        heads: H.
    """
    if query.dtype is torch.float16:  # for CUDA, whose kernel is known to take this one
        inputs = [query, key, value, None, lengths, bias]
        name = "com.microsoft::MultiHeadAttention"
        return _node(name, inputs, query, query.shape, num_heads=heads)
    inputs = [query, key, value, bias, None, None, lengths.long()]
    return _node("Attention", inputs, query, query.shape, q_num_heads=heads, kv_num_heads=heads)


def cached_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    cache: tuple[Tensor, Tensor],
    last_index: Tensor,
    max_length: Tensor,
    heads: int,
    *,
    bias: Tensor | None = None,
    rotary: tuple[Tensor, Tensor] | None = None,
    scales: tuple[Tensor, Tensor] | None = None,
    return_weights: bool = False,
) -> tuple[Tensor, ...]:
    """Writes one new key and value into each row's cache and attends to the row's entries.

    The cost depends on a row's own length, not on the cache's capacity, and no row depends on
    another. The caches are updated in place when the caller binds each to both ends.

    Args:
        query: ``[B, 1, A]``; or ``[B, 1, 3A]``, query, key and value packed, where key is None.
        key: ``[B, 1, A]``.
        value: ``[B, 1, A]``.
        cache: Keys and values, ``[B, H, C, D]`` each, where C is the capacity.
        last_index: Index of each row's new key, which is its length before; int32 ``[B]``.
        max_length: Length of the longest row after writing, at least 2; int32 ``[1]``.
        heads: H.
        bias: Added to the attention logits, ``[B, H, 1, K]``.
        rotary: Cosines and sines ``[C, D / 2]`` that rotate packed queries and keys.
        scales: Of each channel of keys and values, ``[1, H, 1, D]``, for an int8 cache.
        return_weights: Whether to return the attention weights too.

    Returns:
        Heads ``[B, 1, A]``, both caches and, if requested, weights ``[B, H, 1, K]``.
    """
    width = heads * cache[0].size(-1)
    cosine, sine = rotary or (None, None)
    inputs = [query, key, value, *cache, last_index, max_length, cosine, sine, None, bias]
    do_rotary = int(rotary is not None)
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": heads, "do_rotary": do_rotary}
    if scales is not None:
        inputs += [None, *scales]
        per_channel = dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL")
        attributes |= {**per_channel, "kv_cache_bit_width": 8}
    dtypes = [query.dtype, cache[0].dtype, cache[1].dtype]
    shapes: list[Any] = [(query.size(0), 1, width), cache[0].shape, cache[1].shape]
    if return_weights:
        attributes["qk_output"] = _AFTER_SOFTMAX
        dtypes.append(query.dtype)
        # The length of the longest row is known only at run time.
        shapes.append((query.size(0), heads, 1, cache[0].size(2)))
    name = "com.microsoft::GroupQueryAttention"
    return tuple(
        symbolic_multi_out(name, inputs, attributes, dtypes=dtypes, shapes=shapes, version=1)
    )


def add_at(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Adds ``values [.., A]`` to ``x [.., V]`` at ``index [.., A]``, in place where possible."""
    return _node("ScatterElements", [x, index, values], x, x.shape, axis=-1, reduction="add")


def gather_blocks(blocks: Tensor, index: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Takes blocks ``[B, N, S]`` of each row, those at ``index [B, .., 1]``; gives ``shape``."""
    return _node("GatherND", [blocks, index], blocks, shape, batch_dims=1)


def quotient(x: Tensor, divisor: int) -> Tensor:
    """Divides integers, none of them negative, and rounds down; torch's own takes eight nodes."""
    return _node("Div", [x, torch.tensor(divisor)], x, x.shape)


def log_softmax_at(
    logits: Tensor, tokens: Tensor, top_tokens: Tensor, is_wanted: Tensor
) -> tuple[Tensor, Tensor]:
    """Computes log-probabilities of ``logits [B, V]``; zeros, at no cost, unless wanted.

    Args:
        logits: ``[B, V]``.
        tokens: The token of each row, int64 ``[B, 1]``.
        top_tokens: Further tokens of each row, int64 ``[B, K]``.
        is_wanted: bool ``[]``.

    Returns:
        Those of the tokens, ``[B]`` and ``[B, K]``.
    """
    return torch.cond(  # type: ignore[no-any-return]
        is_wanted, _log_softmax_at, _zeros, (logits, tokens, top_tokens)
    )


def _log_softmax_at(logits: Tensor, tokens: Tensor, top_tokens: Tensor) -> tuple[Tensor, Tensor]:
    logprobs = logits.log_softmax(-1)
    return logprobs.gather(1, tokens).squeeze(1), logprobs.gather(1, top_tokens)


def _zeros(logits: Tensor, tokens: Tensor, top_tokens: Tensor) -> tuple[Tensor, Tensor]:
    return logits.new_zeros(logits.size(0)), torch.zeros_like(top_tokens, dtype=logits.dtype)


def first(x: Tensor, size: Tensor) -> Tensor:
    """Keeps the first ``size`` entries of the last axis; int32 ``[1]``, known at run time."""
    begin, axis = torch.zeros(1, dtype=torch.int64), torch.tensor([-1])
    return _node("Slice", [x, begin, size.long(), axis], x, x.shape)


def zeros(like: Tensor, *shape: int) -> Tensor:
    """Returns zeros of the type of another tensor, by a node that stays in place."""
    zero = torch.zeros((), dtype=like.dtype)
    return _node("Expand", [zero, torch.tensor(shape)], like, shape)


def empty_as(x: Tensor, other: Tensor) -> Tensor:
    """Returns ``x [1, ..]`` unchanged, or empty, ``[0, ..]``, if ``other [N, ..]`` is empty.

    A batched product broadcasts one matrix over many, but fails on none.
    """
    size = symbolic("Shape", [other], {"start": 0, "end": 1}, dtype=torch.int64, shape=(1,))
    begin = torch.zeros(1, dtype=torch.int64)
    return _node("Slice", [x, begin, size, begin], x, x.shape)


def quantize(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Rounds ``x [.., K]`` in units of ``scale []`` to integers of the zero point's type."""
    inputs = [x, scale, zero_point]
    return symbolic("QuantizeLinear", inputs, dtype=zero_point.dtype, shape=x.shape)


def dequantized_rows(tokens: Tensor, table: Tensor, scale: Tensor) -> Tensor:
    """Looks up rows of a table in eight bits and scales them back, ``[..]`` to ``[.., W]``.

    Args:
        tokens: Indices, int64 ``[..]``.
        table: uint8 ``[V, W]``, where 128 means zero. scale: Scale of each row, ``[V, 1]``.
    """
    width = table.size(1)
    attributes = {"bits": 8, "gather_axis": 0, "quantize_axis": 1, "block_size": _block(width)}
    inputs, shape = [table, tokens, scale], (*tokens.shape, width)
    return _node("com.microsoft::GatherBlockQuantized", inputs, scale, shape, **attributes)


def _block(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


def integer_product(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """Multiplies integers of eight bits and scales the sums back, to ``[.., N]``.

    Args:
        x: uint8 ``[.., K]``, with a scale ``[]`` and a zero point, uint8 ``[]``.
        scale: Of x.
        zero_point: Of x.
        weight: int8 ``[K, N]``; or several, ``[G, K, N]``, which give ``[G, .., N]``.
        weight_scale: ``[N]``, or ``[G, 1, N]``.
        bias: ``[N]``.
    """
    inputs = [x, weight, scale, weight_scale, zero_point, None, bias]
    name = "com.microsoft::MatMulIntegerToFloat"
    return _node(name, inputs, weight_scale, _product_shape(x, weight))


def grouped_product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiplies rows ``[1, B, K]`` with channels in groups, ``[G, C, K]``, to ``[G, B, C]``."""
    shape = _product_shape(x, weight.transpose(1, 2))
    # With a factor of 1, a single row would take a kernel that adds in another order.
    return _node("com.microsoft::FusedMatMul", [-x, weight], x, shape, transB=1, alpha=-1.0)


def _product_shape(x: Tensor, weight: Tensor) -> tuple[Any, ...]:
    return (*(weight.shape[:-2] or x.shape[:-2]), x.size(-2), weight.size(-1))
