import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounding import assert_same
from tests.unit.model.conftest import make_config
from torch import Tensor

from seqserve_model.attention import attention_weights
from seqserve_model.config import PositionScheme
from seqserve_model.positions import (
    AlibiPositions,
    LearnedPositions,
    PositionError,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    T5LayerPositions,
    T5Positions,
    distances,
    make_positions,
    marian_sinusoids,
    sinusoids,
)

B, H, D, W = 2, 4, 6, 24
LENGTH = 16


pytestmark = pytest.mark.usefixtures("double")


def scheme(name: str, *, causal: bool = True) -> Positions:
    """Makes a scheme for a stack of two layers."""
    made: dict[str, Callable[[], Positions]] = {
        "sinusoidal": lambda: SinusoidalPositions(sinusoids(LENGTH, W)),
        "marian": lambda: SinusoidalPositions(marian_sinusoids(LENGTH, W)),
        "learned": lambda: LearnedPositions(LENGTH, W),
        "relative": lambda: RelativePositions(2, H, D, 3),
        "t5": lambda: T5Positions(H, 8, 12, causal=causal),
        "t5-layers": lambda: T5LayerPositions(2, H, 8, 12, causal=causal),
        "rotary": lambda: RotaryPositions(LENGTH, D, 10_000),
        "alibi": lambda: AlibiPositions(H),
    }
    return made[name]()


def test_distances_are_key_minus_query() -> None:
    assert distances(2, 4, start=2).tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]


# Sinusoidal and learned


@pytest.mark.parametrize("width", [2, 8, 9])
def test_sinusoids_are_the_formula_of_the_paper(width: int) -> None:
    expected = torch.zeros(LENGTH, width)
    for position in range(LENGTH):
        for column in range(width):
            angle = position / 10_000 ** ((column - column % 2) / width)
            expected[position, column] = math.cos(angle) if column % 2 else math.sin(angle)
    assert_same(sinusoids(LENGTH, width), expected)


@pytest.mark.parametrize("width", [4, 8, 24])
def test_sinusoids_of_marian_are_its_formula(width: int) -> None:
    expected = torch.zeros(LENGTH, width)
    for position in range(LENGTH):
        for column in range(width // 2):
            angle = position * math.exp(-column * math.log(10_000) / (width // 2 - 1))
            expected[position, column] = math.sin(angle)
            expected[position, width // 2 + column] = math.cos(angle)
    assert_same(marian_sinusoids(LENGTH, width), expected)


def test_learned_positions_are_trained() -> None:
    positions = LearnedPositions(LENGTH, W)
    x = torch.randn(B, 3, W)
    marked = positions.embed(x, start=5)
    assert_same(marked - x, positions.table[5:8].expand(B, 3, W))
    marked.sum().backward()  # type: ignore[no-untyped-call]
    assert positions.table.grad is not None
    assert positions.table.grad[:, 0].tolist() == [0.0] * 5 + [2.0] * 3 + [0.0] * 8


@pytest.mark.parametrize(("start", "count"), [(LENGTH, 1), (LENGTH - 1, 3), (0, LENGTH + 1)])
@pytest.mark.parametrize("name", ["sinusoidal", "learned", "rotary"])
def test_positions_past_the_table_are_refused(name: str, start: int, count: int) -> None:
    positions = scheme(name)
    with pytest.raises(PositionError, match=f"position {start + count - 1} is past .* 15"):
        if name == "rotary":
            positions.rotate(torch.zeros(B, H, count, D), start)
        else:
            positions.embed(torch.zeros(B, count, W), start)


@pytest.mark.parametrize("name", [member.value for member in PositionScheme])
def test_longest_target_fits_behind_the_begin_token(name: str) -> None:
    config = make_config(positions=PositionScheme(name), max_target_length=20)
    positions = make_positions(config, layers=2, causal=True)
    heads = torch.zeros(B, config.heads, 1, config.head_size)
    positions.embed(torch.zeros(B, 1, config.width), 20)
    positions.rotate(heads, 20)
    positions.bias(1, heads, 20, 21)


# Relative (Shaw et al. 2018)


@pytest.mark.parametrize("start", [0, 4])
def test_relative_positions_are_equations_3_and_4(start: int) -> None:
    reach = 3
    positions = RelativePositions(2, H, D, reach)
    queries, layer = 5, 1
    keys = start + queries
    query, key, value = (torch.randn(B, H, n, D) for n in (queries, keys, keys))
    scores = torch.zeros(B, H, queries, keys)
    for i in range(queries):
        for j in range(keys):
            clipped = max(-reach, min(reach, j - (start + i)))
            by_distance = positions.keys[layer, :, clipped + reach]  # [H, D]
            scores[:, :, i, j] = (query[:, :, i] * (key[:, :, j] + by_distance)).sum(-1)
    weights = (scores / math.sqrt(D)).softmax(-1)
    expected = torch.zeros(B, H, queries, D)
    for i in range(queries):
        for j in range(keys):
            clipped = max(-reach, min(reach, j - (start + i)))
            by_distance = positions.averages[layer, :, clipped + reach]
            expected[:, :, i] += weights[:, :, i, j, None] * (value[:, :, j] + by_distance)
    ours = attention_weights(query, key, bias=positions.bias(layer, query, start, keys))
    assert_same(ours, weights)
    assert_same(ours @ value + positions.values(layer, ours, start), expected)


# Rotary (Su et al. 2021)


def test_rotary_base_sets_the_wavelength() -> None:
    positions = RotaryPositions(LENGTH, 4, base=100.0)
    turned = positions.rotate(torch.tensor([1.0, 1, 0, 0]).expand(1, 1, 4, 4), 0)[0, 0, 3]
    expected = [math.cos(3), math.cos(0.3), math.sin(3), math.sin(0.3)]
    assert_same(turned, torch.tensor(expected))


# ALiBi (Press et al. 2022)


def test_alibi_falls_to_both_sides_in_the_encoder() -> None:
    bias = AlibiPositions(2).bias(0, torch.zeros(1, 2, 3, D), 0, 3)
    assert bias[0].tolist() == [[0, -0.0625, -0.125], [-0.0625, 0, -0.0625], [-0.125, -0.0625, 0]]


# What all schemes owe


def scores(positions: Positions, query: Tensor, key: Tensor, start: int) -> Tensor:
    """Scores one query vector at ``start`` against one key vector at every position."""
    keys = positions.rotate(key.expand(1, H, LENGTH, D), 0)
    turned = positions.rotate(query.expand(1, H, 1, D), start)
    products = (turned @ keys.transpose(-2, -1))[0, :, 0]  # [H, K]
    bias = positions.bias(0, query.expand(1, H, 1, D), start, LENGTH)
    return products if bias is None else products + bias.reshape(H, LENGTH)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["relative", "t5", "rotary", "alibi"])
@given(place=st.integers(0, LENGTH - 1), other=st.integers(0, LENGTH - 1), seed=st.integers(0, 999))
@settings(deadline=None, max_examples=20)
def test_scores_depend_on_distance_only(
    name: str, causal: bool, place: int, other: int, seed: int
) -> None:
    torch.manual_seed(seed)
    positions = scheme(name, causal=causal)
    query, key = torch.randn(H, 1, D), torch.randn(H, 1, D)
    shift = other - place
    before, after = (scores(positions, query, key, at) for at in (place, other))
    kept = slice(max(0, shift), LENGTH + min(0, shift))
    moved = slice(max(0, -shift), LENGTH - max(0, shift))
    assert_same(after[:, kept], before[:, moved])


@pytest.mark.parametrize("name", [member.value for member in PositionScheme])
@pytest.mark.parametrize("start", [1, 4])
def test_block_is_marked_as_the_end_of_the_whole(name: str, start: int) -> None:
    positions = scheme(name)
    x, heads, weights = torch.randn(B, 6, W), torch.randn(B, H, 6, D), torch.rand(B, H, 6, 6)
    assert torch.equal(positions.embed(x[:, start:], start), positions.embed(x, 0)[:, start:])
    rotated = positions.rotate(heads[:, :, start:], start)
    assert torch.equal(rotated, positions.rotate(heads, 0)[:, :, start:])
    whole, block = (positions.bias(1, heads[:, :, at:], at, 6) for at in (0, start))
    if whole is not None:
        assert_same(block, whole[..., start:, :])
    whole, block = (positions.values(1, weights[:, :, at:], at) for at in (0, start))
    if whole is not None:
        assert_same(block, whole[:, :, start:])
    assert positions.needs_weights == (whole is not None)


@pytest.mark.parametrize("name", [member.value for member in PositionScheme])
def test_scheme_marks_something(name: str) -> None:
    positions = scheme(name)
    x, heads = torch.ones(1, 4, W), torch.ones(1, H, 4, D)
    bias = positions.bias(0, heads, 0, 4)
    marks = [positions.embed(x, 0)[0], positions.rotate(heads, 0)[0, 0]]
    marks += [] if bias is None else [bias.reshape(H, 4, 4)[0]]
    assert any(not torch.equal(mark[2], mark[3]) for mark in marks)
    changed = (torch.equal(marks[0], x[0]), torch.equal(marks[1], heads[0, 0]), bias is None)
    assert changed.count(False) == 1, "a scheme acts at one point"
