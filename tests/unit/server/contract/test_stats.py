"""Statistics of several engines add up."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.stats import EngineStats
from seqserve_server.engine.observer import StatsRecorder

steps = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 1000)), max_size=20)


def of_steps(steps: list[tuple[int, int]]) -> EngineStats:
    recorder = StatsRecorder()
    for rows, duration_s in steps:
        recorder.stepped(rows, duration_s, outside_s=0.0)
    return recorder.snapshot()


@given(steps, steps)
def test_engines_add_up(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    together = EngineStats()
    together.add(of_steps(some))
    together.add(of_steps(others))
    whole = of_steps(some + others)
    assert shown(together) == shown(whole)
    assert shown(pickle.loads(pickle.dumps(together))) == shown(whole)


def shown(stats: EngineStats) -> object:
    histograms = {name: one.buckets() for name, one in stats.histograms.items()}
    return histograms, stats.totals, stats.deadlines, stats.stops
