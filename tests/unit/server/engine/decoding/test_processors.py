from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.decoding.table import made

from seqserve_server.engine.decoding.distribution import Distribution
from seqserve_server.engine.decoding.processors import normalize, penalize_repetition, processors_of

A, B, C, D = 1, 2, 3, 4

SHARES = [0.1, 0.2, 0.4, 0.3]
LOGITS = np.log(np.array(SHARES, np.float32))


def shares(said: list[int], **options: Any) -> Any:
    found = Distribution(LOGITS, said, processors_of(made(**options)) or [normalize])
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
    found = Distribution(
        scores, [], processors_of(made(prefix=(1,), prefix_bias_beta=0.25)) or [normalize]
    )
    assert found.log_probabilities.tolist() == pytest.approx([math.log(0.75), math.log(0.25)])


def test_scores_are_left_as_they_are() -> None:
    """They are the graph's own buffer."""
    before = LOGITS.copy()
    shares([1], prefix=(1, 0), prefix_bias_beta=0.5, repetition_penalty=2.0)
    np.testing.assert_array_equal(LOGITS, before)


@pytest.mark.parametrize("penalty", [1.5, 0.5])
def test_words_that_were_said_lose_or_gain_whatever_their_sign(penalty: float) -> None:
    scores = np.array([2.0, -2.0, 3.0, 0.0], np.float32)
    found = penalize_repetition(penalty, scores, [1, 0, 1, 3], None)
    # Once, however often a word was said.
    assert found.tolist() == pytest.approx([2 / penalty, -2 * penalty, 3, 0])
    assert scores.tolist() == [2, -2, 3, 0], "the scores themselves are changed"


def test_nothing_said_changes_nothing() -> None:
    scores = np.array([2.0, -2.0], np.float32)
    np.testing.assert_array_equal(penalize_repetition(5.0, scores, [], None), scores)
