import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import make_sampling

from seqserve_server.contract.options import Sampling
from seqserve_server.engine.decoding.sampling import (
    SamplingParams,
    sample,
    sample_all,
    sorted_for_sampling,
    weights_of,
)
from seqserve_server.engine.packing import Array

LOGITS = np.array([1.5, -1.0, 0.0, 2.0, 0.5, -0.5, 1.0, -3.0, 1.75, 0.25], np.float32)


def params_of(*samplings: Sampling) -> SamplingParams:
    """Gives the parameters of rows, one for each."""
    params = SamplingParams.empty(len(samplings))
    for row, sampling in enumerate(samplings):
        params.put(row, sampling)
    return params


def staying(logits: Array, sampling: Sampling) -> tuple[list[int], list[float]]:
    """Gives the tokens that stay, best first, and their weights."""
    tokens = sorted_for_sampling(logits, sampling)
    [weights] = weights_of(logits[None, tokens], params_of(sampling))
    return tokens[weights > 0].tolist(), weights[weights > 0].tolist()


def sample_one(logits: Array, sampling: Sampling, number: float) -> int:
    [token] = sample_rows(logits[None], [sampling], np.array([number]))
    return token


def sample_rows(logits: Array, samplings: list[Sampling], numbers: Array) -> list[int]:
    """Samples a token of each row ``[R, V]``; either all of them are ranked, or none."""
    if not samplings[0].is_ranked:
        tokens, _ = sample_all(logits, params_of(*samplings), numbers)
        return tokens.tolist()  # type: ignore[no-any-return]
    orders = np.stack(
        [sorted_for_sampling(row, each) for row, each in zip(logits, samplings, strict=True)]
    )
    columns = sample(np.take_along_axis(logits, orders, 1), params_of(*samplings), numbers)
    return orders[np.arange(len(orders)), columns].tolist()  # type: ignore[no-any-return]


def probabilities(logits: list[float], sampling: Sampling) -> dict[int, float]:
    """Gives the probability of each token that stays, by the definitions."""
    highest = max(logits)
    weights = [math.exp((logit - highest) / sampling.temperature) for logit in logits]
    whole = math.fsum(weights)
    shares = [weight / whole for weight in weights]
    # By logits, because logits may differ where shares do not.
    tokens = sorted(range(len(shares)), key=lambda token: -logits[token])
    tokens = tokens[: sampling.top_k or None]
    enough = sampling.top_p * math.fsum(shares[token] for token in tokens)
    stay = list[int]()
    for token in tokens:
        stay.append(token)
        if math.fsum(shares[token] for token in stay) >= enough:
            break
    stay = [token for token in stay if shares[token] >= sampling.min_p * max(shares)]
    rest = math.fsum(shares[token] for token in stay)
    return {token: shares[token] / rest for token in stay}


rows_of_logits = st.lists(
    st.floats(-30, 30, width=32, allow_subnormal=False) | st.sampled_from([0.0, 1.0, -1e30]),
    min_size=1,
    max_size=300,
)


@settings(deadline=None, max_examples=60)
@given(
    logits=rows_of_logits,
    temperature=st.floats(0.05, 20),
    top_k=st.integers(0, 310),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
)
def test_the_tokens_that_stay_follow_the_definitions(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Among them logits of suppressed tokens; where all are suppressed, all are alike."""
    sampling = Sampling(temperature, top_k, top_p, min_p, seed=0)
    tokens, weights = staying(np.array(logits, np.float32), sampling)
    expected = probabilities(logits, sampling)
    expected = {token: share for token, share in expected.items() if share > 0}
    # Sums of shares that differ by a rounding may let one token more or less stay.
    border = set(tokens) ^ set(expected)
    assert len(border) <= 1
    if not border:
        found = {
            token: weight / sum(weights) for token, weight in zip(tokens, weights, strict=True)
        }
        assert found == pytest.approx(expected, abs=1e-5)


def test_top_p_takes_the_first_of_many_equally_probable_tokens() -> None:
    flat = np.zeros(1000, np.float32)
    assert staying(flat, make_sampling(top_p=0.5))[0] == list(range(500))
    assert staying(flat, make_sampling(top_p=0.9, top_k=200))[0] == list(range(180))


def test_top_p_sorts_all_tokens_only_where_the_most_probable_are_not_enough() -> None:
    peaked = np.full(1000, -20.0, np.float32)
    peaked[900:] = np.arange(100) / 100
    tokens, _ = staying(peaked, make_sampling(top_p=0.9))
    assert tokens == list(range(999, 999 - len(tokens), -1))
    assert len(staying(peaked, make_sampling(top_p=1 - 1e-12))[0]) > 128


@pytest.mark.parametrize(
    "sampling", [make_sampling(top_k=3), make_sampling(top_k=3, top_p=0.5)], ids=str
)
def test_top_k_sorts_no_more_than_stay(sampling: Sampling) -> None:
    assert sorted_for_sampling(LOGITS, sampling).tolist() == [3, 8, 0]


@pytest.mark.parametrize("count", [1, 127, 128, 129, 500])
def test_unsorted_tokens_follow_each_other_across_blocks(count: int) -> None:
    """A row for every number at which another token may begin, and for one just before."""
    logits = np.random.default_rng(3).normal(0, 3, count).astype(np.float32)
    logits[::5] = -1e30 if count > 1 else 0.0
    sampling = make_sampling(temperature=0.7, min_p=0.001)
    weights = np.exp((logits - logits.max()).astype(np.float64) / 0.7)
    weights[weights < 0.001] = 0
    ends = weights.cumsum() / weights.sum()
    middles = ((ends + np.concatenate([[0.0], ends[:-1]])) / 2)[weights > 0]
    found = sample_rows(np.tile(logits, (len(middles), 1)), [sampling] * len(middles), middles)
    assert found == np.flatnonzero(weights > 0).tolist()


def test_unsorted_tokens_come_with_their_distance_from_the_best() -> None:
    tokens, below = sample_all(LOGITS[None], params_of(make_sampling()), np.array([0.1]))
    assert below.tolist() == [2.0 - LOGITS[tokens[0]]]


@pytest.mark.parametrize("temperature", [1e-44, 1e-9])
def test_nearly_no_temperature_leaves_the_best_token(temperature: float) -> None:
    masked = LOGITS.copy()
    masked[0] = -1e30
    found = {sample_one(masked, make_sampling(temperature=temperature), n) for n in (0, 0.5, 0.999)}
    assert found == {3}


def test_among_equals_the_lower_token_id_stays() -> None:
    level = np.array([0.0, 1.0, 1.0, 1.0, 0.0], np.float32)
    assert staying(level, make_sampling(top_k=2))[0] == [1, 2]
    assert staying(level, make_sampling(top_k=4))[0] == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("number", "token"), [(0.0, 1), (0.2499, 1), (0.25, 2), (0.9999, 4), (1 - 2**-53, 4)]
)
@pytest.mark.parametrize("top_k", [0, 4])
def test_a_random_number_falls_on_the_tokens_in_their_order(
    number: float, token: int, top_k: int
) -> None:
    """Four tokens of a quarter each, between two suppressed ones."""
    level = np.array([-1e30, 0, 0, 0, 0, -1e30], np.float32)
    assert sample_one(level, make_sampling(top_k=top_k), number) == token


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 6), width=st.integers(1, 20))
def test_rows_sampled_together_get_the_tokens_of_each_alone(
    seed: int, count: int, width: int
) -> None:
    """Bit for bit, though their options differ, and though some need fewer tokens than listed."""
    random = np.random.default_rng(seed)
    samplings = [
        make_sampling(
            temperature=float(random.choice([0.3, 1.0, 2.0])),
            top_k=int(random.choice([0, 1, 3, 50])),
            top_p=float(random.choice([0.3, 0.9, 1.0])),
            min_p=float(random.choice([0.0, 0.2, 0.7])),
        )
        for _ in range(count)
    ]
    unranked = [each._replace(top_k=0, top_p=1.0) for each in samplings]
    logits, numbers = random.normal(size=(count, 37 * width)).astype("f4"), random.random(count)
    separately = [sample_one(*row) for row in zip(logits, unranked, numbers, strict=True)]
    assert sample_rows(logits, unranked, numbers) == separately
    listed = -np.sort(random.exponential(2.0, (count, width)).astype(np.float32), axis=1)
    numbers = random.random(count)
    together = weights_of(listed, params_of(*samplings))
    columns = sample(listed, params_of(*samplings), numbers)
    for row, sampling in enumerate(samplings):
        own = listed[row : row + 1, : sampling.top_k or None]
        alone = weights_of(own, params_of(sampling))
        np.testing.assert_array_equal(together[row, : own.shape[1]], alone[0])
        assert not together[row, own.shape[1] :].any()
        assert columns[row] == sample(own, params_of(sampling), numbers[row : row + 1])[0]


@pytest.mark.parametrize(
    "sampling", [Sampling(0.5, 3, 0.5, 0.1, 0), make_sampling(top_p=0.5), make_sampling()], ids=str
)
def test_sampling_does_not_change_the_graphs_buffer(sampling: Sampling) -> None:
    before = LOGITS.copy()
    sample_one(LOGITS, sampling, 0.5)
    np.testing.assert_array_equal(LOGITS, before)
