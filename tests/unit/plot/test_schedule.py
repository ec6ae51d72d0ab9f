from pathlib import Path

import numpy as np
import pytest
from tests.unit.plot.pictures import heat_maps

from seqserve_plot.schedule import Stay, draw, one_batch_after_another, tokens_held, trace

SLOTS = 2
TEXTS = ["a b c", "d", "e f g h i", "b", "c d", "a", "h g f"]


@pytest.fixture(scope="module")
def stays(tiny_artifact: Path) -> list[Stay]:
    return trace(tiny_artifact, TEXTS, SLOTS)


def test_no_more_run_than_there_are_slots(stays: list[Stay]) -> None:
    steps = max(stay.end for stay in stays)
    running = (~np.isnan(tokens_held(stays, steps))).sum(axis=0)
    assert running.max() == SLOTS
    assert running.min() > 0


def test_who_waits_takes_a_freed_slot_in_the_next_step(stays: list[Stay]) -> None:
    later = sorted(stay.begin for stay in stays)[SLOTS:]
    assert set(later) <= {stay.end for stay in stays}


def test_a_second_trace_is_the_same(stays: list[Stay], tiny_artifact: Path) -> None:
    assert trace(tiny_artifact, TEXTS, SLOTS) == stays


def test_a_cache_grows_by_a_token_a_step() -> None:
    held = tokens_held([Stay(source_tokens=3, begin=1, end=4)], 5)
    np.testing.assert_array_equal(held, [[np.nan, 4, 5, 6, np.nan]])


def test_a_batch_begins_when_the_longest_of_the_last_one_has_ended() -> None:
    stays = [Stay(source_tokens=1, begin=9, end=9 + steps) for steps in (2, 5, 1, 1, 4)]
    batches = one_batch_after_another(stays, slots=2)
    assert [(stay.begin, stay.end) for stay in batches] == [(0, 2), (0, 5), (5, 6), (5, 6), (6, 10)]


def test_both_ways_are_drawn_on_one_scale(stays: list[Stay]) -> None:
    continuous, batches = heat_maps(draw(stays, SLOTS))[:2]
    assert continuous.shape == batches.shape
    assert np.nansum(continuous) == np.nansum(batches)
