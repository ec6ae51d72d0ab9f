from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve_server.contract.options import Sampling
from seqserve_server.engine.decoding.sampling import (
    SamplingParams,
    sample,
    sorted_for_sampling,
    weights_of,
)
from seqserve_server.engine.packing import Array

# 1 in 1000 samples of the right distribution has a greater statistic, by degrees of freedom;
# NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.4.
CRITICAL = [0.0, 10.828, 13.816, 16.266, 18.467, 20.515, 22.458, 24.322, 26.125, 27.877, 29.588]
DRAWS = 10_000

SCORES = np.array([1.5, -1.0, 0.0, 2.0, 0.5, -0.5, 1.0, -3.0, 1.75, 0.25], np.float32)


def how(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Sampling:
    return Sampling(temperature, top_k, top_p, min_p, seed=0)


def rows_of(*samplings: Sampling) -> SamplingParams:
    rows = SamplingParams.empty(len(samplings))
    for row, sampling in enumerate(samplings):
        rows.put(row, sampling)
    return rows


def kept(scores: Array, sampling: Sampling) -> tuple[list[int], list[float]]:
    """Gives the words that stay, best first, and their weights."""
    words = sorted_for_sampling(scores, sampling)
    [weights] = weights_of(scores[None, words], rows_of(sampling))
    return words[weights > 0].tolist(), weights[weights > 0].tolist()


def draw(scores: Array, sampling: Sampling, number: float) -> int:
    words = sorted_for_sampling(scores, sampling)
    [place] = sample(scores[None, words], rows_of(sampling), np.array([number]))
    return int(words[place])


def probabilities(scores: list[float], sampling: Sampling) -> dict[int, float]:
    """Gives those of the words that may be sample, by their definitions."""
    highest = max(scores)
    weights = [math.exp((score - highest) / sampling.temperature) for score in scores]
    whole = math.fsum(weights)
    shares = [weight / whole for weight in weights]
    # Scores that differ by too little for their shares to differ have an order all the same.
    words = sorted(range(len(shares)), key=lambda word: -scores[word])
    words = words[: sampling.top_k or None]
    held = math.fsum(shares[word] for word in words)
    enough, kept = sampling.top_p * held, list[int]()
    for word in words:
        kept.append(word)
        if math.fsum(shares[word] for word in kept) >= enough:
            break
    kept = [word for word in kept if shares[word] >= sampling.min_p * max(shares)]
    held = math.fsum(shares[word] for word in kept)
    return {word: shares[word] / held for word in kept}


@pytest.mark.parametrize(
    ("sampling", "count"),
    [
        (how(), 10),
        (how(temperature=0.5), 10),
        (how(temperature=3.0), 10),
        (how(top_k=4), 4),
        (how(top_p=0.8), 4),
        (how(min_p=0.2), 5),
        (how(temperature=2.0, top_k=8, top_p=0.9, min_p=0.3), 7),
    ],
    ids=str,
)
def test_words_are_drawn_as_often_as_they_are_probable(sampling: Sampling, count: int) -> None:
    random = np.random.default_rng(20)
    # As rows of which each has a number.
    words = np.tile(sorted_for_sampling(SCORES, sampling), (DRAWS, 1))
    places = sample(SCORES[words], rows_of(*[sampling] * DRAWS), random.random(DRAWS))
    counts = Counter(words[np.arange(DRAWS), places].tolist())
    ought = probabilities(SCORES.tolist(), sampling)
    assert len(ought) == count
    assert set(counts) <= set(ought), "a word was sample that was sorted out"
    statistic = math.fsum(
        (counts[word] - DRAWS * share) ** 2 / (DRAWS * share) for word, share in ought.items()
    )
    assert statistic < CRITICAL[len(ought) - 1]


scores = st.lists(
    st.floats(-30, 30, width=32, allow_subnormal=False) | st.sampled_from([0.0, 1.0, -1e30]),
    min_size=1,
    max_size=300,
)


@settings(deadline=None, max_examples=60)
@given(
    scores=scores,
    temperature=st.floats(0.05, 20),
    top_k=st.integers(0, 310),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
)
def test_candidates_are_those_of_the_definitions(
    scores: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    sampling = how(temperature, top_k, top_p, min_p)
    # Forbidden words are lowered beyond reach; where all are, they are alike.
    words, weights = kept(np.array(scores, np.float32), sampling)
    ought = probabilities(scores, sampling)
    ought = {word: share for word, share in ought.items() if share > 0}
    # Sums of shares that differ by a rounding may keep one more or less.
    border = set(words) ^ set(ought)
    assert len(border) <= 1
    if not border:
        found = {word: weight / sum(weights) for word, weight in zip(words, weights, strict=True)}
        assert found == pytest.approx(ought, abs=1e-5)


def test_top_p_finds_its_words_among_very_many_alike() -> None:
    flat = np.zeros(1000, np.float32)
    assert kept(flat, how(top_p=0.5))[0] == list(range(500))
    assert kept(flat, how(top_p=0.9, top_k=200))[0] == list(range(180))


def test_top_p_has_what_it_needs_where_few_words_have_nearly_all() -> None:
    """Only these are sorted; those that follow are too improbable to stay."""
    peaked = np.full(1000, -20.0, np.float32)
    peaked[900:] = np.arange(100) / 100
    words, _ = kept(peaked, how(top_p=0.9))
    assert words == list(range(999, 999 - len(words), -1))
    # Fewer than all are not enough for this.
    assert len(kept(peaked, how(top_p=1 - 1e-12))[0]) > 128


def test_all_words_are_looked_at_where_all_stay() -> None:
    for sampling in (how(), how(min_p=0.1), how(top_p=0.99), how(top_k=400)):
        assert sorted(sorted_for_sampling(np.zeros(300, np.float32), sampling).tolist()) == list(
            range(300)
        )


def test_best_word_comes_first_and_the_others_in_their_order() -> None:
    assert sorted_for_sampling(SCORES, how()).tolist() == [3, 0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_no_more_words_than_top_k_are_ordered() -> None:
    assert sorted_for_sampling(SCORES, how(top_k=3)).tolist() == [3, 8, 0]
    assert sorted_for_sampling(SCORES, how(top_k=3, top_p=0.5)).tolist() == [3, 8, 0]


def test_among_equals_the_first_of_the_vocabulary_is_kept() -> None:
    level = np.array([0.0, 1.0, 1.0, 1.0, 0.0], np.float32)
    assert kept(level, how(top_k=2))[0] == [1, 2]
    assert kept(level, how(top_k=4))[0] == [1, 2, 3, 0]


@pytest.mark.parametrize("sampling", [how(top_k=1), how(top_p=1e-9), how(min_p=1.0)], ids=str)
def test_the_best_word_always_stays(sampling: Sampling) -> None:
    assert kept(SCORES, sampling)[0] == [3]


def test_temperature_comes_before_what_is_kept() -> None:
    """Hot, the shares are alike and more words are needed for as much."""
    cold, hot = (kept(SCORES, how(temperature, top_p=0.9))[0] for temperature in (0.3, 5.0))
    assert len(cold) < len(hot)


def test_top_p_counts_the_words_that_top_k_leaves() -> None:
    # Shares of .4 .3 .2 .1; of the first two together, the first has 4/7.
    shares = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    assert kept(shares, how(top_p=0.55))[0] == [0, 1]
    assert kept(shares, how(top_p=0.55, top_k=2))[0] == [0]


def test_forbidden_words_are_never_drawn_however_hot_it_is() -> None:
    lowered = SCORES.copy()
    lowered[[0, 3, 9]] -= np.float32(1e30)
    found = {draw(lowered, how(temperature=1000.0), number) for number in np.linspace(0, 1, 500)}
    assert found == {1, 2, 4, 5, 6, 7, 8}


@pytest.mark.parametrize(
    ("number", "word"), [(0.0, 1), (0.2499, 1), (0.25, 2), (0.9999, 4), (1 - 2**-53, 4)]
)
def test_number_falls_on_the_words_in_a_row(number: float, word: int) -> None:
    """Four words of a quarter each, between two that have nothing."""
    level = np.array([-1e30, 0, 0, 0, 0, -1e30], np.float32)
    assert draw(level, how(), number) == word


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 6), listed=st.integers(1, 20))
def test_rows_are_drawn_together_as_alone(seed: int, count: int, listed: int) -> None:
    """Bit for bit, though each has options of its own, and more is listed than some look at."""
    random = np.random.default_rng(seed)
    samplings = [
        how(
            float(random.choice([0.3, 1.0, 2.0])),
            int(random.choice([0, 1, 3, 50])),
            float(random.choice([0.3, 0.9, 1.0])),
            float(random.choice([0.0, 0.2, 0.7])),
        )
        for _ in range(count)
    ]
    listing = -np.sort(random.exponential(2.0, (count, listed)).astype(np.float32), axis=1)
    numbers = random.random(count)
    together = weights_of(listing, rows_of(*samplings))
    places = sample(listing, rows_of(*samplings), numbers)
    for row, sampling in enumerate(samplings):
        few = listing[row : row + 1, : sampling.top_k or None]
        alone = weights_of(few, rows_of(sampling))
        np.testing.assert_array_equal(together[row, : few.shape[1]], alone[0])
        assert not together[row, few.shape[1] :].any()
        assert places[row] == sample(few, rows_of(sampling), numbers[row : row + 1])[0]


def test_options_of_some_rows_are_theirs() -> None:
    rows = rows_of(how(0.5, 3, 0.9, 0.1), how(2.0, 0, 0.8, 0.2), how(3.0, 1, 0.7, 0.3))
    some = rows.of(np.array([2, 0]))
    assert [array.tolist() for array in some] == [[3.0, 0.5], [1, 3], [0.7, 0.9], [0.3, 0.1]]
    assert rows.top_k[1] > 10**9, "there is a bound"


@pytest.mark.parametrize("sampling", [how(0.5, 3, 0.5, 0.1), how(top_p=0.5), how()], ids=str)
def test_scores_are_left_as_they_are(sampling: Sampling) -> None:
    before = SCORES.copy()
    draw(SCORES, sampling, 0.5)
    np.testing.assert_array_equal(SCORES, before)
