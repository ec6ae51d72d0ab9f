from __future__ import annotations

import math
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve_server.engine.request import Sampling
from seqserve_server.engine.sampling import candidates, draw

# 1 in 1000 samples of the right distribution has a greater statistic, by degrees of freedom;
# NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.4.
CRITICAL = [0.0, 10.828, 13.816, 16.266, 18.467, 20.515, 22.458, 24.322, 26.125, 27.877, 29.588]
DRAWS = 10_000

SCORES = np.array([1.5, -1.0, 0.0, 2.0, 0.5, -0.5, 1.0, -3.0, 1.75, 0.25], np.float32)


def how(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Sampling:
    return Sampling(temperature, top_k, top_p, min_p, seed=0)


def probabilities(scores: list[float], sampling: Sampling) -> dict[int, float]:
    """Gives those of the words that may be drawn, by their definitions."""
    whole = math.fsum(math.exp(score / sampling.temperature) for score in scores)
    shares = [math.exp(score / sampling.temperature) / whole for score in scores]
    words = sorted(range(len(shares)), key=lambda word: -shares[word])
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
    ("sampling", "words"),
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
def test_words_are_drawn_as_often_as_they_are_probable(sampling: Sampling, words: int) -> None:
    random = np.random.default_rng(20)
    counts = Counter(draw(SCORES, sampling, random) for _ in range(DRAWS))
    ought = probabilities(SCORES.tolist(), sampling)
    assert len(ought) == words
    assert set(counts) <= set(ought), "a word was drawn that was sorted out"
    statistic = math.fsum(
        (counts[word] - DRAWS * share) ** 2 / (DRAWS * share) for word, share in ought.items()
    )
    assert statistic < CRITICAL[len(ought) - 1]


scores = st.lists(
    st.floats(-30, 30, width=32) | st.sampled_from([0.0, 1.0, -1e30]), min_size=1, max_size=300
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
    words, weights = candidates(np.array(scores, np.float32), sampling)
    highest = max(scores)
    ought = probabilities([score - highest for score in scores], sampling)
    # Sums of shares that differ by a rounding may keep one more or less.
    border = set(words.tolist()) ^ set(ought)
    assert len(border) <= 1
    if not border:
        found = dict(zip(words.tolist(), (weights / weights.sum()).tolist(), strict=True))
        assert found == pytest.approx(ought, abs=1e-5)


def test_top_p_finds_its_words_among_very_many_alike() -> None:
    flat = np.zeros(1000, np.float32)
    assert candidates(flat, how(top_p=0.5))[0].tolist() == list(range(500))
    assert candidates(flat, how(top_p=0.9, top_k=200))[0].tolist() == list(range(180))


def test_among_equals_the_first_of_the_vocabulary_is_kept() -> None:
    level = np.array([0.0, 1.0, 1.0, 1.0, 0.0], np.float32)
    assert candidates(level, how(top_k=2))[0].tolist() == [1, 2]
    assert candidates(level, how(top_k=4))[0].tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("sampling", [how(top_k=1), how(top_p=1e-9), how(min_p=1.0)], ids=str)
def test_the_best_word_always_stays(sampling: Sampling) -> None:
    assert candidates(SCORES, sampling)[0].tolist() == [3]


def test_temperature_comes_before_what_is_kept() -> None:
    """Hot, the shares are alike and more words are needed for as much."""
    cold, hot = (candidates(SCORES, how(temperature, top_p=0.9))[0] for temperature in (0.3, 5.0))
    assert len(cold) < len(hot)


def test_top_p_counts_the_words_that_top_k_leaves() -> None:
    # Shares of .4 .3 .2 .1; of the first two together, the first has 4/7.
    shares = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    assert candidates(shares, how(top_p=0.55))[0].tolist() == [0, 1]
    assert candidates(shares, how(top_p=0.55, top_k=2))[0].tolist() == [0]


def test_forbidden_words_are_never_drawn_however_hot_it_is() -> None:
    lowered = SCORES.copy()
    lowered[[0, 3, 9]] -= np.float32(1e30)
    random = np.random.default_rng(3)
    drawn = {draw(lowered, how(temperature=1000.0), random) for _ in range(500)}
    assert drawn == {1, 2, 4, 5, 6, 7, 8}


@pytest.mark.parametrize("sampling", [how(), how(top_k=1), how(top_p=0.5, min_p=0.9)], ids=str)
def test_one_random_number_is_taken_whatever_the_options_are(sampling: Sampling) -> None:
    random = mock.Mock(spec=["random"])
    random.random.return_value = 0.5
    draw(SCORES, sampling, random)
    random.random.assert_called_once_with()


@pytest.mark.parametrize(
    ("number", "word"), [(0.0, 1), (0.2499, 1), (0.25, 2), (0.9999, 4), (1 - 2**-53, 4)]
)
def test_number_falls_on_the_words_in_a_row(number: float, word: int) -> None:
    """Four words of a quarter each, between two that have nothing."""
    random = mock.Mock(spec=["random"])
    random.random.return_value = number
    level = np.array([-1e30, 0, 0, 0, 0, -1e30], np.float32)
    assert draw(level, how(), random) == word


def test_scores_are_left_as_they_are() -> None:
    before = SCORES.copy()
    draw(SCORES, how(0.5, 3, 0.5, 0.1), np.random.default_rng(0))
    np.testing.assert_array_equal(SCORES, before)
