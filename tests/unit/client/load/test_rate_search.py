"""The search for the highest rate, on servers that are functions."""

import math
from collections import Counter

import pytest

from seqserve.load import Answer
from seqserve.load.rate_search import Probe, best_of, broken_rate, highest_rate, p99_ms


@pytest.mark.parametrize("capacity", [23.0, 31.0, 100.0, 690.0])
@pytest.mark.parametrize("first", [5.0, 16.0, 700.0])
def test_it_ends_close_below_the_capacity(capacity: float, first: float) -> None:
    probes = highest_rate(lambda rate: Probe(rate, 1.0, rate <= capacity), first)
    best = best_of(probes)
    assert best is not None
    assert capacity / 1.06 <= best.rate_per_s <= capacity
    assert len(probes) < 40
    # What broke the limit was tried again.
    tries = Counter(probe.rate_per_s for probe in probes)
    assert all(tries[probe.rate_per_s] == 2 - probe.holds for probe in probes)


def test_no_rate_holds_or_every_one() -> None:
    probes = highest_rate(lambda rate: Probe(rate, math.inf, False), 16.0)
    assert best_of(probes) is None and len(probes) < 24
    probes = highest_rate(lambda rate: Probe(rate, 1.0, True), 16.0)
    assert best_of(probes) == probes[-1]
    # One above a broken one does not count.
    probes = [Probe(1.0, 1.0, True), Probe(2.0, 9.0, False), Probe(3.0, 1.0, True)]
    assert best_of(probes) == probes[0]


def test_a_rate_that_breaks_once_may_hold() -> None:
    """Something else held the machine up."""
    seen: set[float] = set()

    def probe(rate_per_s: float) -> Probe:
        holds = rate_per_s <= 100.0 and rate_per_s in seen
        seen.add(rate_per_s)
        return Probe(rate_per_s, 1.0, holds)

    probes = highest_rate(probe, 16.0)
    best = best_of(probes)
    assert best is not None
    assert 100.0 / 1.06 <= best.rate_per_s <= 100.0
    assert broken_rate(probes) > 100.0
    assert math.isinf(broken_rate([]))


def test_failures_are_late() -> None:
    served = Answer(due_s=0.0, sent_s=0.0, total_s=0.01)
    failed = Answer(due_s=0.0, sent_s=0.0, error="UNAVAILABLE")
    assert p99_ms([served] * 99 + [failed]) == 10.0
    assert math.isinf(p99_ms([served] * 98 + [failed] * 2))
