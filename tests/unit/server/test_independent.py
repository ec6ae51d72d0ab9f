from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from seqserve_server.engine.request import Hypothesis, Sampling, StopReason

from .table import EOS, LEAST, WORDS, Steps, after, always

A, B, C, D = 1, 2, 3, 4

COIN = always({EOS: 0.2, A: 0.5, B: 0.3})


def log(*probabilities: float) -> Any:
    return pytest.approx(math.log(math.prod(probabilities)), abs=1e-6)


def drawing(seed: int = 7, *, temperature: float = 1.0, top_k: int = 0) -> Sampling:
    return Sampling(temperature=temperature, top_k=top_k, top_p=1.0, min_p=0.0, seed=seed)


def samples(count: int, seed: int = 7, **options: Any) -> list[Hypothesis]:
    return Steps(COIN, sampling=drawing(seed), num_hypotheses=count, **options).finish()


def test_best_word_is_said() -> None:
    [found] = Steps(after({(): {A: 0.6, B: 0.4}, (A,): {C: 0.7, EOS: 0.3}})).finish()
    assert found.token_ids == [A, C]
    assert found.score == log(0.6, 0.7)
    assert found.normalized_score == pytest.approx((found.score or 0) / 3)
    assert found.stop_reason is StopReason.EOS


def test_only_what_needs_all_scores_asks_for_them() -> None:
    asks = [
        ({}, (0, False)),
        ({"return_top_tokens": 3}, (3, False)),
        ({"repetition_penalty": 1.1, "return_top_tokens": 3}, (0, True)),
        ({"sampling": drawing()}, (0, True)),
        # The graph finds so many best words for less.
        ({"sampling": drawing(top_k=5)}, (5, False)),
        ({"sampling": drawing(top_k=5), "return_top_tokens": 7}, (7, False)),
        ({"sampling": drawing(top_k=64)}, (64, False)),
        ({"sampling": drawing(top_k=65)}, (0, True)),
        ({"sampling": drawing(top_k=5), "repetition_penalty": 1.1}, (0, True)),
        ({"prefix": (A,), "stops": ("a",)}, (0, False)),
    ]
    for options, asked in asks:
        search = Steps(COIN, **options).search
        assert (search.ranked, search.shows_scores) == asked


def test_row_that_has_ended_leaves_and_the_others_go_on() -> None:
    steps = Steps(COIN, sampling=drawing(), num_hypotheses=4)
    ended = 0
    while True:
        before = len(steps.rows)
        choice = steps.step()
        if choice.finished:
            break
        assert choice.parents == sorted(set(choice.parents)), "rows keep their order"
        ended += before - len(steps.rows)
    assert before > 0
    assert ended + before == len(choice.finished) == 4


def test_samples_come_best_first() -> None:
    ranks = [one.normalized_score for one in samples(8)]
    assert len(set(ranks)) > 3
    assert ranks == sorted(ranks, reverse=True)


def test_equal_seeds_give_equal_samples() -> None:
    assert samples(4) == samples(4)
    assert samples(4) != samples(4, seed=8)


def test_sample_has_random_numbers_of_its_own() -> None:
    """How many others are drawn beside it, and how soon they end, changes nothing."""
    few, many = samples(2, max_decoding_length=30), samples(9, max_decoding_length=30)
    assert all(sample in many for sample in few)


def test_word_is_the_one_on_which_the_next_number_falls() -> None:
    [found] = samples(1, max_decoding_length=30)
    random = np.random.default_rng([7, 0])
    words = []
    while (number := random.random()) >= 0.2:
        words.append(A if number < 0.7 else B)
    assert found.token_ids == words


@pytest.mark.parametrize("prefix", [(), (C,), (C, D, C)])
def test_prefix_takes_no_random_number(prefix: tuple[int, ...]) -> None:
    [free] = samples(1, max_decoding_length=9)
    [forced] = samples(1, max_decoding_length=9 + len(prefix), prefix=prefix)
    assert forced.token_ids == [*prefix, *free.token_ids]
    assert forced.score == free.score


def test_prefix_has_no_scores() -> None:
    table = after({(C, D): {A: 0.6, B: 0.4}})
    options = {"prefix": (C, D), "return_token_scores": True, "return_top_tokens": 2}
    for more in ({}, {"repetition_penalty": 1.5}):
        [found] = Steps(table, **options, **more).finish()
        assert found.token_ids == [C, D, A]
        assert found.token_scores == pytest.approx(
            [math.nan, math.nan, math.log(0.6), 0], nan_ok=True, abs=1e-6
        )
        assert found.score == log(0.6)
        assert [[word for word, _ in step] for step in found.top_tokens[:3]] == [[], [], [A, B]]
        assert len(found.top_tokens) == 4


def test_temperature_changes_what_is_drawn_and_not_the_scores() -> None:
    table = always({EOS: 0.1, A: 0.6, B: 0.3})
    for temperature in (0.01, 1.0, 50.0):
        options = {"sampling": drawing(temperature=temperature), "return_token_scores": True}
        [found] = Steps(table, max_decoding_length=6, **options).finish()
        known = {EOS: 0.1, A: 0.6, B: 0.3}
        ended = [EOS] if found.stop_reason is StopReason.EOS else []
        for word, score in zip([*found.token_ids, *ended], found.token_scores, strict=True):
            assert score == log(known.get(word, LEAST))
    [cold] = Steps(table, sampling=drawing(temperature=0.01), max_decoding_length=6).finish()
    assert cold.token_ids == [A] * 6


def test_top_k_of_one_is_greedy_search() -> None:
    table = after({(): {A: 0.4, B: 0.35, C: 0.25}, (A,): {D: 0.6, EOS: 0.4}})
    [drawn] = Steps(table, sampling=drawing(top_k=1)).finish()
    [best] = Steps(table).finish()
    assert drawn.token_ids == best.token_ids == [A, D]
    assert drawn.score == pytest.approx(best.score)


def test_few_best_words_are_drawn_alike_from_the_few_and_from_all() -> None:
    table = always({EOS: 0.05, A: 0.4, B: 0.3, C: 0.15, D: 0.1})
    sampling = drawing(top_k=3)
    few = Steps(table, sampling=sampling, num_hypotheses=6)
    # A penalty that does nothing, but asks for all.
    every = Steps(table, sampling=sampling, num_hypotheses=6, repetition_penalty=1 + 1e-12)
    assert (few.search.shows_scores, every.search.shows_scores) == (False, True)
    for one, other in zip(few.finish(), every.finish(), strict=True):
        assert one.token_ids == other.token_ids
        assert one.score == pytest.approx(other.score)
        assert set(one.token_ids) <= {A, B, C}


def test_words_that_were_said_are_penalised() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {A: 0.6, B: 0.4}, (A, B): {A: 0.9, B: 0.1}})
    [found] = Steps(table, repetition_penalty=2.0, return_token_scores=True).finish()
    # .6² to .4, then .9² to .1²
    assert found.token_ids == [A, B, A]
    assert found.token_scores[1] == log(0.4 / (0.6**2 + 0.4))
    assert found.token_scores[2] == log(0.9**2 / (0.9**2 + 0.1**2))


def test_what_is_forbidden_is_not_drawn() -> None:
    options = {"sampling": drawing(temperature=100.0), "max_decoding_length": 200}
    [found] = Steps(COIN, min_decoding_length=200, suppressed=((A,), (B, C)), **options).finish()
    assert len(found.token_ids) == 200
    assert EOS not in found.token_ids
    assert A not in found.token_ids
    pairs = set(zip(found.token_ids, found.token_ids[1:], strict=False))
    assert (B, C) not in pairs
    assert len(pairs) == (WORDS - 2) ** 2 - 1


def test_each_sample_ends_in_its_own_way() -> None:
    options = {"end_ids": (B,), "stops": ("aa",), "max_decoding_length": 3}
    found = samples(60, **options)
    reasons = {one.stop_reason for one in found}
    assert reasons == set(StopReason)
    for one in found:
        if one.stop_reason is StopReason.STOP_SEQUENCE:
            assert [A, A] not in (one.token_ids[i : i + 2] for i in range(2))
            assert one.text_length is not None
        else:
            assert one.text_length is None
            assert B not in one.token_ids


def test_top_tokens_are_those_of_the_step_even_where_another_is_drawn() -> None:
    options = {"sampling": drawing(), "return_top_tokens": 2, "max_decoding_length": 20}
    [found] = Steps(COIN, **options, return_token_scores=True).finish()
    assert set(found.token_ids) == {A, B}
    for step in found.top_tokens:
        assert [word for word, _ in step] == [A, B]
        assert [score for _, score in step] == [log(0.5), log(0.3)]
    assert len(found.top_tokens) == len(found.token_scores)


def test_scores_that_are_not_asked_for_are_not_told() -> None:
    for sample in samples(3, return_scores=False):
        assert (sample.score, sample.normalized_score) == (None, None)
        assert (sample.token_scores, sample.top_tokens) == ((), ())
