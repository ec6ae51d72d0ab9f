"""Percentiles, rates and limits, on answers made by hand."""

from __future__ import annotations

import math

import pytest
from bench.latency import (
    Answer,
    HighestRate,
    highest_rate,
    percentile,
    share_within,
    steady_rate,
    summary,
)
from hypothesis import given
from hypothesis import strategies as st


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
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= share * len(values) * (1 - 1e-9)
    assert sum(value < found for value in values) < max(1.0, share * len(values))


def test_failed_requests_took_for_ever() -> None:
    found = summary([answer(0.0, 0.01)] * 98 + [failure(0.0)] * 2, 1.0)
    assert found.total.p90 == 0.01
    assert math.isinf(found.total.p99) and math.isinf(found.first.p99)
    assert found.errors == {"DEADLINE_EXCEEDED": 2}
    assert found.requests == 100


def test_served_rate_lasts_until_the_last_answer() -> None:
    assert summary([answer(0.0, 0.1), answer(0.5, 0.1)], 1.0).served_per_s == 2.0
    assert summary([answer(0.0, 0.1), answer(0.5, 1.5)], 1.0).served_per_s == 1.0
    assert summary([failure(0.0)], 1.0).served_per_s == 0.0


def test_steady_rate_leaves_out_beginning_and_end() -> None:
    answers = [answer(0.0, at_s) for at_s in (0.5, 0.9, 1.0, 2.0, 2.9, 3.0, 3.5)]
    assert steady_rate(answers, 3.0) == pytest.approx(3 / 2.0)


def test_share_within_counts_failures() -> None:
    answers = [answer(0.0, 0.1), answer(0.0, 0.2), answer(0.0, 0.3), failure(0.0)]
    assert share_within(answers, 0.2) == 0.5


def test_highest_rate_lies_between_points() -> None:
    points = [(100.0, 0.01), (200.0, 0.02), (300.0, 0.06)]
    found = highest_rate(points, 0.03)
    assert found.per_s == pytest.approx(225.0)
    assert not found.is_bound


def test_highest_rate_is_where_the_limit_breaks_first() -> None:
    points = [(100.0, 0.01), (200.0, 0.03), (300.0, 0.01)]
    assert highest_rate(points, 0.02).per_s == pytest.approx(150.0)


def test_highest_rate_without_a_crossing() -> None:
    assert highest_rate([(100.0, 0.01), (200.0, 0.02)], 0.03) == HighestRate(200.0, True)
    assert highest_rate([(100.0, 0.05), (200.0, 0.02)], 0.03) == HighestRate(0.0, False)
    assert highest_rate([(100.0, 0.01), (200.0, math.inf)], 0.03) == HighestRate(100.0, True)
