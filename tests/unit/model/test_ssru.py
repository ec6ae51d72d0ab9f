import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounding import assert_same
from torch import Tensor

from seqserve_model.layers import SSRU, scan, ssru_step

B, W = 3, 8

pytestmark = pytest.mark.usefixtures("double")


def loop(kept: Tensor, added: Tensor) -> Tensor:
    state, states = torch.zeros_like(added[:, 0]), []
    for token in range(added.size(1)):
        state = kept[:, token] * state + added[:, token]
        states.append(state)
    return torch.stack(states, dim=1)


@given(tokens=st.integers(1, 20), more=st.integers(0, 9), seed=st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_scan_is_the_loop_over_tokens(tokens: int, more: int, seed: int) -> None:
    torch.manual_seed(seed)
    kept, added = torch.rand(B, tokens, W), torch.randn(B, tokens, W)
    products, states = scan(kept, added, tokens + more)
    assert_same(states, loop(kept, added))
    assert_same(products, kept.cumprod(1))


def test_gradient_of_the_scan_is_that_of_the_loop() -> None:
    kept, added = torch.rand(B, 13, W, requires_grad=True), torch.randn(B, 13, W)
    aim = torch.randn(B, 13, W)
    gradients = [
        torch.autograd.grad((states * aim).sum(), kept)[0]
        for states in (scan(kept, added, 13)[1], loop(kept, added))
    ]
    assert_same(*gradients)


@torch.no_grad()
def test_a_pass_is_the_formula_of_the_paper() -> None:
    cell, x, state = SSRU(W, 12), torch.randn(B, 9, W), torch.randn(B, W)
    outputs, last = cell(x, state)
    for token in range(9):
        f = 1 / (1 + torch.exp(-(x[:, token] @ cell.forget.weight.T + cell.forget.bias)))
        state = f * state + (1 - f) * (x[:, token] @ cell.input.weight.T)
        assert_same(outputs[:, token], state.clamp(min=0))
    assert_same(last, state)


@torch.no_grad()
def test_steps_are_a_pass() -> None:
    cell, x, state = SSRU(W, 12), torch.randn(B, 9, W), torch.randn(B, W)
    outputs, last = cell(x, state)
    for token in range(9):
        output, state = ssru_step(cell.input(x[:, token]), cell.forget(x[:, token]), state)
        assert_same(output, outputs[:, token])
    assert_same(state, last)


@torch.no_grad()
def test_states_of_a_far_past_neither_vanish_nor_overflow() -> None:
    kept, added = torch.ones(1, 4096, 1), torch.zeros(1, 4096, 1)
    added[:, 0] = 1.0
    assert (scan(kept, added, 4096)[1] == 1.0).all()
    kept[:, 1:] = 0.0
    assert (scan(kept, added, 4096)[1][:, 1:] == 0.0).all()
