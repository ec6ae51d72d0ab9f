"""Percentiles, rates and shares, of answers made by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.load.answer import Answer, percentile, served_rate, share_within, steady_rate


def answer(due_s: float, total_s: float) -> Answer:
    return Answer(due_s=due_s, sent_s=0.001, first_s=total_s / 2, total_s=total_s, tokens=3)


def failure(due_s: float) -> Answer:
    return Answer(due_s=due_s, sent_s=0.001, error="DEADLINE_EXCEEDED")


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]


def test_percentile_of_one() -> None:
    assert percentile([7.0], 0.0) == percentile([7.0], 0.99) == 7.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_no_less_than_its_share_is_at_or_below_a_percentile(
    values: list[float], share: float
) -> None:
    bound = percentile(values, share)
    assert sum(value <= bound for value in values) >= share * len(values) * (1 - 1e-9)
    assert sum(value < bound for value in values) < max(1.0, share * len(values))


def test_served_rate_lasts_until_the_last_answer() -> None:
    assert served_rate([answer(0.0, 0.1), answer(0.5, 0.1)], 1.0) == 2.0
    assert served_rate([answer(0.0, 0.1), answer(0.5, 1.5)], 1.0) == 1.0
    assert served_rate([failure(0.0)], 1.0) == 0.0


def test_steady_rate_leaves_out_beginning_and_end() -> None:
    answers = [answer(0.0, at_s) for at_s in (0.5, 0.9, 1.0, 2.0, 2.9, 3.0, 3.5)]
    assert steady_rate(answers, 3.0) == pytest.approx(3 / 2.0)


def test_share_within_counts_failures() -> None:
    answers = [answer(0.0, 0.1), answer(0.0, 0.2), answer(0.0, 0.3), failure(0.0)]
    assert share_within(answers, 0.2) == 0.5
