"""Arrivals are Poisson, and the same for every peer."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from bench.arrivals import poisson

SOURCES = ["one", "two", "three"]


def test_same_seed_same_arrivals() -> None:
    assert poisson(50.0, 5.0, SOURCES, "a") == poisson(50.0, 5.0, SOURCES, "a")
    assert poisson(50.0, 5.0, SOURCES, "a") != poisson(50.0, 5.0, SOURCES, "b")


def test_due_in_order_and_in_time() -> None:
    due_s = [arrival.due_s for arrival in poisson(200.0, 3.0, SOURCES, 1)]
    assert due_s == sorted(due_s)
    assert due_s[0] > 0.0 and due_s[-1] < 3.0


def test_gaps_are_exponential() -> None:
    arrivals = poisson(100.0, 200.0, SOURCES, 1)
    gaps = [later.due_s - earlier.due_s for earlier, later in pairwise(arrivals)]
    assert statistics.fmean(gaps) == pytest.approx(0.01, rel=0.03)
    # What tells it from a steady stream: gaps vary as much as their mean.
    assert statistics.stdev(gaps) == pytest.approx(0.01, rel=0.05)


def test_every_source_is_drawn() -> None:
    assert {arrival.source for arrival in poisson(100.0, 2.0, SOURCES, 1)} == set(SOURCES)
