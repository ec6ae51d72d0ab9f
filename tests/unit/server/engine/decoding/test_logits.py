"""Softmax, top-k and length normalisation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.engine.decoding.logits import largest, log_softmax, normalized


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


def test_a_score_is_divided_by_the_length_to_the_power_of_the_penalty() -> None:
    assert normalized(-6.0, 4, 0.0) == -6.0
    assert normalized(-6.0, 4, 1.0) == -1.5
    assert normalized(-6.0, 4, 0.5) == -3.0
    assert normalized(-6.0, 0, 1.0) == -6.0, "an empty hypothesis counts as one token"
