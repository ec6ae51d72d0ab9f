from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounding import assert_same
from torch import Tensor

from seqserve_model.attention import (
    attention_weights,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)

B, H, Q, K, D = 3, 2, 4, 6, 8
LENGTHS = torch.tensor([6, 2, 4])

pytestmark = pytest.mark.usefixtures("double")

Attend = Callable[..., Tensor]


def by_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    return attention_weights(query, key, mask, bias) @ value


both_ways = pytest.mark.parametrize("attend", [scaled_dot_product_attention, by_weights])


def heads(length: int, batch: int = B) -> Tensor:
    return torch.randn(batch, H, length, D)


@both_ways
@pytest.mark.parametrize("mask", [None, padding_mask(LENGTHS, K), causal_mask(Q, K)])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_is_equation_1(attend: Attend, mask: Tensor | None, biased: bool) -> None:
    query, key, value = heads(Q), heads(K), heads(K)
    bias = torch.randn(H, Q, K) if biased else None
    allowed = torch.ones(B, H, Q, K, dtype=torch.bool)
    if mask is not None:
        allowed = mask.expand(B, H, Q, K)
    expected = torch.zeros(B, H, Q, D)
    for b, h, q in torch.cartesian_prod(*map(torch.arange, (B, H, Q))).tolist():
        seen = [k for k in range(K) if allowed[b, h, q, k]]
        scores = torch.stack([query[b, h, q] @ key[b, h, k] for k in seen])
        scores = scores / D**0.5
        if bias is not None:
            scores = scores + bias[h, q, seen]
        shares = scores.exp() / scores.exp().sum()
        expected[b, h, q] = sum(
            share * value[b, h, k] for share, k in zip(shares, seen, strict=True)
        )
    assert_same(attend(query, key, value, mask, bias), expected)


def test_padding_mask_is_true_up_to_each_length() -> None:
    mask = padding_mask(torch.tensor([2, 0, 3]), 3)
    assert mask.shape == (3, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [[True, True, False], [False] * 3, [True] * 3]


def test_causal_mask_shows_the_past() -> None:
    assert causal_mask(3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


@given(queries=st.integers(0, 6), past=st.integers(0, 6))
@settings(deadline=None, max_examples=20)
def test_causal_mask_of_a_block_is_the_end_of_the_whole(queries: int, past: int) -> None:
    keys = past + queries
    assert torch.equal(causal_mask(queries, keys), causal_mask(keys, keys)[past:])


@both_ways
@pytest.mark.parametrize("biased", [False, True])
def test_row_without_any_key_is_zero_and_has_a_gradient(attend: Attend, biased: bool) -> None:
    inputs = [heads(n).requires_grad_() for n in (Q, K, K)]
    bias = torch.randn(H, Q, K, requires_grad=True) if biased else None
    output = attend(*inputs, padding_mask(torch.tensor([K, 0, 3]), K), bias)
    output.square().sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(output[1], torch.zeros(H, Q, D))
    assert output[[0, 2]].abs().min() > 0
    for x in [*inputs, *([bias] if bias is not None else [])]:
        assert x.grad is not None
        assert x.grad.isfinite().all()
    for x in inputs:
        assert x.grad is not None
        assert torch.equal(x.grad[1], torch.zeros_like(x[1]))
        assert x.grad[0].abs().max() > 0


@both_ways
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    size=st.sampled_from([1, 1e4]),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=30)
def test_content_of_padding_never_matters(
    attend: Attend, lengths: list[int], size: float, seed: int
) -> None:
    torch.manual_seed(seed)
    batch, keys = len(lengths), 5
    query, key, value = heads(Q, batch), heads(keys, batch), heads(keys, batch)
    mask = padding_mask(torch.tensor(lengths), keys)
    hidden = ~mask.transpose(-1, -2)  # [B, 1, K, 1]
    other_key = torch.where(hidden, size * heads(keys, batch), key)
    other_value = torch.where(hidden, size * heads(keys, batch), value)
    before = attend(query, key, value, mask)
    assert torch.equal(attend(query, other_key, other_value, mask), before)


def test_dropout_of_weights_reaches_the_kernel() -> None:
    value = torch.ones(1, 1, 64, 1)
    query, key = torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 64, 1)
    dropped = scaled_dot_product_attention(query, key, value, dropout=0.5)
    assert dropped.item() != 1.0
    assert dropped.item() * 32 == pytest.approx(round(dropped.item() * 32))
