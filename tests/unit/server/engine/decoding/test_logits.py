import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import log, make_options

from seqserve_server.engine.decoding.logits import (
    Distribution,
    RankedTokens,
    column_of,
    largest,
    log_softmax,
    normalize,
    normalized,
    penalize_repetition,
    processors_of,
)
from seqserve_server.engine.step import MASKED_LOGIT


@given(logits=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40))
def test_log_probabilities_follow_the_definition_of_the_softmax(logits: list[float]) -> None:
    found = log_softmax(np.array(logits, np.float32))
    whole = math.fsum(math.exp(logit) for logit in logits)
    assert found.tolist() == pytest.approx([math.log(math.exp(logit) / whole) for logit in logits])
    assert found.dtype == np.float64


def test_a_masked_logit_takes_no_probability_and_stays_finite() -> None:
    found = log_softmax(np.array([1.0, -1e30, 1.0], np.float32))
    assert found[[0, 2]].tolist() == pytest.approx([math.log(0.5)] * 2)
    assert found[1] < -1e29
    assert np.isfinite(found).all()


@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=50), count=st.integers(0, 60))
def test_the_largest_values_come_first_and_among_equals_the_first(
    values: list[int], count: int
) -> None:
    expected = sorted(range(len(values)), key=lambda index: -values[index])[:count]
    assert largest(np.array(values, np.float32), count).tolist() == expected


def test_an_empty_hypothesis_counts_as_one_token() -> None:
    assert normalized(-6.0, 0, 1.0) == -6.0


A, B, C = 1, 2, 3
PROBABILITIES = [0.1, 0.2, 0.4, 0.3]
LOGITS = np.log(np.array(PROBABILITIES, np.float32))


def processed(output: list[int], **options: Any) -> Any:
    """Gives the probabilities after the processors."""
    processors = processors_of(make_options(**options)) or [normalize]
    return np.exp(Distribution(LOGITS, output, processors).log_probabilities).tolist()


def test_a_request_that_changes_no_probability_has_no_processors() -> None:
    assert processors_of(make_options(prefix=(A, B, C), return_top_tokens=3)) == ()


@pytest.mark.parametrize("output", [[B], [A, A], [A, B, A], [B, A, B], [A, B], [A, B, C]])
def test_no_token_is_preferred_after_the_prefix_or_away_from_it(output: list[int]) -> None:
    found = processed(output, prefix=(A, B), prefix_bias_beta=0.5)
    assert found == pytest.approx(PROBABILITIES)


def test_the_prefix_is_preferred_after_the_repetition_penalty() -> None:
    whole = 0.1 + 0.2**2 + 0.4 + 0.3
    found = processed([1], prefix=(1, 0), prefix_bias_beta=0.5, repetition_penalty=2.0)
    expected = [(0.1 / whole + 1) / 2, *(share / whole / 2 for share in (0.2**2, 0.4, 0.3))]
    assert found == pytest.approx(expected)


def test_a_token_of_almost_no_probability_can_be_preferred() -> None:
    logits = np.array([0.0, -1e30], np.float32)
    processors = processors_of(make_options(prefix=(1,), prefix_bias_beta=0.25))
    found = Distribution(logits, [], processors).log_probabilities
    assert found.tolist() == pytest.approx([math.log(0.75), math.log(0.25)])


def test_processors_do_not_change_the_graphs_buffer() -> None:
    before = LOGITS.copy()
    processed([1], prefix=(1, 0), prefix_bias_beta=0.5, repetition_penalty=2.0)
    np.testing.assert_array_equal(LOGITS, before)


@pytest.mark.parametrize("penalty", [1.5, 0.5])
def test_a_repetition_penalty_divides_positive_logits_and_multiplies_negative_ones(
    penalty: float,
) -> None:
    logits = np.array([2.0, -2.0, 3.0, 0.0], np.float32)
    found = penalize_repetition(penalty, logits, [1, 0, 1, 3], None)
    # Once, however often the token was generated.
    assert found.tolist() == pytest.approx([2 / penalty, -2 * penalty, 3, 0])
    assert logits.tolist() == [2, -2, 3, 0], "the logits themselves are changed"
    np.testing.assert_array_equal(penalize_repetition(penalty, logits, [], None), logits)


def test_a_repetition_penalty_finds_the_columns_of_allowed_tokens() -> None:
    logits, columns = np.array([2.0, 3.0, 5.0], np.float32), np.array([4, 7, 9])
    # Tokens 2 and 12 are not allowed and have no column.
    assert penalize_repetition(2.0, logits, [9, 2, 4, 12], columns).tolist() == [1.0, 3.0, 2.5]


@pytest.mark.parametrize(("token", "column"), [(4, 0), (9, 2), (2, None), (8, None), (12, None)])
def test_only_allowed_tokens_have_a_column(token: int, column: int | None) -> None:
    assert column_of(token, np.array([4, 7, 9])) == column
    assert column_of(token, None) == token


def test_top_tokens_are_listed_with_their_log_probabilities() -> None:
    found = Distribution(LOGITS, [], [normalize])
    assert found.pairs(2) == [(2, log(0.4)), (3, log(0.3))]
    tokens, log_probabilities = found.top(3)
    assert tokens.tolist() == [2, 3, 1]
    assert log_probabilities.tolist() == [log(0.4), log(0.3), log(0.2)]
    assert found.pairs(0) == []


@given(count=st.integers(0, 5))
def test_the_first_tokens_of_the_graphs_list_are_its_top_tokens(count: int) -> None:
    tokens, log_probabilities = np.array([5, 7, 6]), np.array([-0.5, -1.0, -1.5], np.float32)
    listed = RankedTokens(tokens, log_probabilities)
    pairs = list(zip(tokens.tolist(), log_probabilities.tolist(), strict=True))[:count]
    assert listed.pairs(count) == pairs


@pytest.mark.parametrize("penalty", [1.0, 1 / 64, 64.0])
def test_suppressed_tokens_are_not_listed(penalty: float) -> None:
    """Not even where a repetition penalty below 1 favours them."""
    logits = np.array([-1.0, MASKED_LOGIT, -1.0, MASKED_LOGIT], np.float32)
    found = Distribution(
        logits, [1, 3], processors_of(make_options(repetition_penalty=penalty)) or [normalize]
    )
    assert found.pairs(4) == [(0, log(0.5)), (2, log(0.5))]
    assert found.log_probabilities[[1, 3]].tolist() == [float(MASKED_LOGIT)] * 2
    assert RankedTokens(np.array([7, 5]), np.array([0.0, MASKED_LOGIT])).pairs(2) == [(7, 0.0)]
