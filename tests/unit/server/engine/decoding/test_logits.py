from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.engine.decoding.logits import largest, log_softmax, normalized

numbers = st.floats(-50, 50, width=32)


@given(scores=st.lists(numbers, min_size=1, max_size=40))
def test_log_probabilities_are_those_of_the_definition(scores: list[float]) -> None:
    found = log_softmax(np.array(scores, np.float32))
    whole = math.fsum(math.exp(score) for score in scores)
    assert found.tolist() == pytest.approx([math.log(math.exp(s) / whole) for s in scores])
    assert found.dtype == np.float64


def test_forbidden_word_takes_no_probability_and_breaks_nothing() -> None:
    found = log_softmax(np.array([1.0, -1e30, 1.0], np.float32))
    assert found[[0, 2]].tolist() == pytest.approx([math.log(0.5)] * 2)
    assert found[1] < -1e29
    assert np.isfinite(found).all()


@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=50), count=st.integers(0, 60))
def test_largest_come_first_and_among_equals_the_first(values: list[int], count: int) -> None:
    ought = sorted(range(len(values)), key=lambda place: -values[place])[:count]
    assert largest(np.array(values, np.float32), count).tolist() == ought


def test_score_by_its_length() -> None:
    assert normalized(-6.0, 4, 0.0) == -6.0
    assert normalized(-6.0, 4, 1.0) == -1.5
    assert normalized(-6.0, 4, 0.5) == -3.0
    assert normalized(None, 4, 1.0) is None


def test_nothing_is_not_divided_by() -> None:
    assert normalized(-6.0, 0, 1.0) == -6.0
