import math
import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.stats import EngineStats, Histogram, geometric, powers_of_two
from seqserve_server.engine.observer import StatsRecorder

steps = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 1000)), max_size=20)


def of_steps(steps: list[tuple[int, int]]) -> EngineStats:
    recorder = StatsRecorder()
    for rows, duration_s in steps:
        recorder.stepped(rows, duration_s, outside_s=0.0)
    return recorder.snapshot()


@given(steps, steps)
def test_engines_add_up(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    together = EngineStats() + of_steps(some) + of_steps(others)
    whole = of_steps(some + others)
    assert shown(together) == shown(whole)
    assert shown(pickle.loads(pickle.dumps(together))) == shown(whole)


def shown(stats: EngineStats) -> object:
    histograms = {name: one.buckets() for name, one in stats.histograms.items()}
    return histograms, stats.totals, stats.deadlines, stats.stops


# ---- histograms


def test_bounds_of_requests() -> None:
    bounds = geometric(0.0005, 60.0)
    assert bounds[0] == 0.0005
    assert bounds[-2] < 60.0 <= bounds[-1]
    for low, high in pairwise(bounds):
        assert high / low == pytest.approx(1.5, rel=0.01)


def test_bounds_by_a_factor() -> None:
    assert geometric(1.0, 8.0, factor=2.0) == powers_of_two(8) == [1.0, 2.0, 4.0, 8.0]


def test_others_are_added() -> None:
    histogram, other = Histogram([1.0, 2.0]), Histogram([1.0, 2.0])
    histogram.observe(0.5)
    other.observe(0.5, count=3)
    other.observe(9.0)
    histogram += other
    assert histogram.buckets() == ([("1.0", 4.0), ("2.0", 4.0), ("+Inf", 5.0)], 11.0)
    assert other.buckets() == ([("1.0", 3.0), ("2.0", 3.0), ("+Inf", 4.0)], 10.5)


def test_others_of_other_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _ = Histogram([1.0, 2.0]) + Histogram([1.0])


@given(st.lists(st.floats(0, 1000)))
def test_totals_rise_to_the_number_of_values(values: list[float]) -> None:
    histogram = Histogram(geometric(0.001, 100.0))
    for value in values:
        histogram.observe(value)
    rows, total = histogram.buckets()
    counts = [count for _, count in rows]
    assert counts == sorted(counts) and counts[-1] == len(values)
    assert total == pytest.approx(math.fsum(values))
    for bound, count in rows:
        assert count == sum(value <= float(bound) for value in values)
