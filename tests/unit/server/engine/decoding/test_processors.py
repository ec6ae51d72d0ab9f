from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import EOS, Rows, always, log, made

from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.cache import MASKED_LOGIT
from seqserve_server.engine.decoding.allowed_tokens import Vocabularies
from seqserve_server.engine.decoding.processors import (
    Best,
    Distribution,
    Distributions,
    alternative,
)
from seqserve_server.engine.decoding.token_buffer import TokenBuffer

A, B, C, D = 1, 2, 3, 4

SHARES = [0.1, 0.2, 0.4, 0.3]
SCORES = np.log(np.array(SHARES, np.float32))


def shares(said: list[int], **options: Any) -> Any:
    found = Distribution(SCORES, said, made(**options))
    return np.exp(found.log_probabilities).tolist()


def test_nothing_is_changed_that_is_not_asked_for() -> None:
    assert shares([A, B], prefix=(A, B, C)) == pytest.approx(SHARES)


def test_words_that_were_said_are_penalised_before_probabilities() -> None:
    whole = 0.1 + 0.2**2 + 0.4 + 0.3**2
    ought = [0.1 / whole, 0.2**2 / whole, 0.4 / whole, 0.3**2 / whole]
    assert shares([1, 3, 1], repetition_penalty=2.0) == pytest.approx(ought)


@pytest.mark.parametrize("beta", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("said", [[], [A], [A, B]])
def test_next_word_of_the_prefix_gains_what_all_others_lose(said: list[int], beta: float) -> None:
    prefix = (A, B, C)
    ought = [(1 - beta) * share for share in SHARES]
    ought[prefix[len(said)]] += beta
    assert shares(said, prefix=prefix, prefix_bias_beta=beta) == pytest.approx(ought)


@pytest.mark.parametrize("said", [[B], [A, A], [A, B, A], [B, A, B], [A, B], [A, B, C]])
def test_hypothesis_that_has_left_the_prefix_or_come_to_its_end_is_free(said: list[int]) -> None:
    assert shares(said, prefix=(A, B), prefix_bias_beta=0.5) == pytest.approx(SHARES)


def test_prefix_is_preferred_after_what_is_penalised() -> None:
    whole = 0.1 + 0.2**2 + 0.4 + 0.3
    found = shares([1], prefix=(1, 0), prefix_bias_beta=0.5, repetition_penalty=2.0)
    ought = [0.5 + 0.5 * 0.1 / whole, 0.5 * 0.2**2 / whole, 0.5 * 0.4 / whole, 0.5 * 0.3 / whole]
    assert found == pytest.approx(ought)


def test_word_that_is_as_good_as_impossible_can_be_preferred() -> None:
    scores = np.array([0.0, -1e30], np.float32)
    found = Distribution(scores, [], made(prefix=(1,), prefix_bias_beta=0.25))
    assert found.log_probabilities.tolist() == pytest.approx([math.log(0.75), math.log(0.25)])


def test_scores_are_left_as_they_are() -> None:
    """They are the graph's own buffer."""
    before = SCORES.copy()
    shares([1], prefix=(1, 0), prefix_bias_beta=0.5, repetition_penalty=2.0)
    np.testing.assert_array_equal(SCORES, before)


def test_best_words_are_listed_with_their_log_probabilities() -> None:
    found = Distribution(SCORES, [], made())
    assert found.ranking(2) == [(2, log(0.4)), (3, log(0.3))]
    words, log_probabilities = found.best(3)
    assert words.tolist() == [2, 3, 1]
    assert log_probabilities.tolist() == [log(0.4), log(0.3), log(0.2)]
    assert found.ranking(0) == []


@given(count=st.integers(0, 5))
def test_first_of_what_the_graph_has_listed_are_the_best(count: int) -> None:
    words, found = np.array([5, 7, 6]), np.array([-0.5, -1.0, -1.5], np.float32)
    listed = Best(words, found)
    ought = list(zip(words.tolist(), found.tolist(), strict=True))[:count]
    assert listed.ranking(count) == ought
    best = listed.best(count)
    assert list(zip(best.token_ids.tolist(), best.log_probabilities.tolist(), strict=True)) == ought


def step_of(row: int, options: DecodingOptions) -> Any:
    """Runs a step of two rows, of which the second has said A and B before."""
    rows = Rows()
    rows.cache.ranked, rows.cache.shows_scores = 3, True
    tables = ({A: 0.7, EOS: 0.3}, {A: 0.4, B: 0.3, C: 0.2, D: 0.1})
    for place, table in enumerate(tables):
        rows.runtime.tables.append(always(table))
        rows.cache.join(place, rows.runtime.encode([[place, EOS]]), 0)
    history = TokenBuffer(rows.cache.slots, 9)
    for length, word in enumerate((A, B), 1):
        history.say(np.array([1]), length, np.array([word]), np.zeros(1))
    rows.cache.lengths[1] = 2
    rows.cache.advance(2)
    steps = Distributions(rows.cache, history, Vocabularies(rows.cache))
    assert steps.said(row) == [[], [A, B]][row]
    return steps.of(row, options)


def test_what_the_graph_has_listed_is_enough_where_nothing_is_changed() -> None:
    found = step_of(1, made(return_top_tokens=2))
    assert isinstance(found, Best)
    assert found.ranking(9) == [(A, log(0.4)), (B, log(0.3)), (C, log(0.2))]


def test_all_words_are_looked_at_where_something_is_changed() -> None:
    found = step_of(1, made(repetition_penalty=2.0))
    assert isinstance(found, Distribution)
    whole = 0.4**2 + 0.3**2 + 0.2 + 0.1
    ought = [(C, 0.2), (A, 0.4**2), (D, 0.1), (B, 0.3**2)]
    assert found.ranking(4) == [(word, log(share / whole)) for word, share in ought]
    plain = step_of(0, made(sampling=Sampling(1.0, 0, 1.0, 0.0, 1)))
    assert plain.ranking(2) == [(A, log(0.7)), (EOS, log(0.3))]


def first_words(found: Best | Distribution, **options: Any) -> list[tuple[int, Any] | None]:
    options = {"return_alternatives": True, "num_hypotheses": 4} | options
    return [alternative(found, number, made(**options)) for number in range(4)]


def listed() -> Best:
    words = np.argsort(-SCORES)
    return Best(words, SCORES[words])


@pytest.mark.parametrize("found", [Distribution(SCORES, [], made()), listed()], ids=["all", "few"])
def test_alternatives_begin_with_the_best_words_that_are_probable(found: Any) -> None:
    ought: list[tuple[int, Any] | None] = [
        (2, log(0.4)),
        (3, log(0.3)),
        (1, log(0.2)),
        (0, log(0.1)),
    ]
    assert first_words(found) == ought
    for least, count in ((0.05, 4), (0.15, 3), (0.35, 1)):
        few = [*ought[:count], *[None] * (4 - count)]
        assert first_words(found, min_alternative_expansion_prob=least) == few


def test_best_alternative_goes_on_however_improbable_it_is() -> None:
    first, *others = first_words(listed(), min_alternative_expansion_prob=1.0)
    assert first == (2, log(0.4))
    assert others == [None] * 3


def test_alternative_that_is_just_as_probable_as_asked_for_goes_on() -> None:
    level = Best(np.array([7, 5, 6]), np.array([0.0, 0.0, -1e-3]))
    found = first_words(level, min_alternative_expansion_prob=1.0)
    assert found == [(7, 0.0), (5, 0.0), None, None]


@pytest.mark.parametrize("penalty", [1.0, 1 / 64, 64.0])
def test_what_is_forbidden_is_not_listed(penalty: float) -> None:
    """Even where it is to be repeated more than anything."""
    scores = np.array([-1.0, MASKED_LOGIT, -1.0, MASKED_LOGIT], np.float32)
    found = Distribution(scores, [1, 3], made(repetition_penalty=penalty))
    assert found.ranking(4) == [(0, log(0.5)), (2, log(0.5))]
    assert found.log_probabilities[[1, 3]].tolist() == [float(MASKED_LOGIT)] * 2
    assert Best(np.array([7, 5]), np.array([0.0, MASKED_LOGIT])).ranking(2) == [(7, 0.0)]


def test_what_is_forbidden_is_no_alternative() -> None:
    forbidden = Best(np.array([7, 5, 6]), np.array([0.0, -80.0, -1e30]))
    assert first_words(forbidden) == [(7, 0.0), (5, -80.0), None, None]
