from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve_server.engine.cache import MASKED_LOGIT
from seqserve_server.engine.decoding.beam_step import (
    Candidates,
    continue_with,
    rank,
    reorder,
    select_next,
)
from seqserve_server.engine.packing import Array

SETTINGS = settings(deadline=None, max_examples=60)
SEEDS = st.integers(0, 2**32)


@SETTINGS
@given(seed=SEEDS, groups=st.integers(1, 4), size=st.integers(2, 4), each=st.integers(1, 9))
def test_continuations_are_ranked_as_by_a_stable_sort(
    seed: int, groups: int, size: int, each: int
) -> None:
    random = np.random.default_rng(seed)
    # Few values, so that many are equal; beams that do not count yet are beyond reach.
    scores = random.choice([0.0, -1.0, -2.0, -np.inf], (groups, size))
    words = random.integers(0, 50, (groups, size, each))
    found = -random.integers(0, 3, words.shape).astype(float)
    together = rank(scores, words, found)
    for group in range(groups):
        every = [
            (
                beam,
                words[group, beam, place],
                found[group, beam, place],
                scores[group, beam] + found[group, beam, place],
            )
            for beam in range(size)
            for place in range(each)
        ]
        best = sorted(every, key=lambda entry: -entry[3])[: 2 * size]
        assert list(zip(*together.of(group), strict=True)) == best


def test_what_is_forbidden_does_not_count() -> None:
    found = rank(
        np.array([[-1.0, -2.0]]),
        np.array([[[7, 8], [7, 8]]]),
        np.array([[[-3.0, MASKED_LOGIT]] * 2]),
    )
    assert found.totals.tolist() == [[-4.0, -5.0, -np.inf, -np.inf]]
    assert found.tokens.tolist() == [[7, 7, 8, 8]]


def test_parts_of_larger_arrays_are_ranked_too() -> None:
    """The graph may have listed more words than these beams look at."""
    listed = np.arange(12).reshape(1, 2, 6)
    found = rank(np.zeros((1, 2)), listed[..., :4], -listed[..., :4].astype(float))
    assert found.tokens.tolist() == [[0, 1, 2, 3]]
    assert found.totals.tolist() == [[0.0, -1.0, -2.0, -3.0]]


def test_beams_that_say_the_same_keep_their_scores() -> None:
    scores = np.array([-1.0, -2.0, -np.inf])
    forced = continue_with(scores, 7, math.nan)
    assert forced.beams.tolist() == [[0, 1, 2]]
    assert forced.tokens.tolist() == [[7, 7, 7]]
    assert np.isnan(forced.log_probabilities).all()
    assert forced.totals.tolist() == [scores.tolist()]
    chosen = continue_with(scores, 7, -0.5)
    assert chosen.log_probabilities.tolist() == [[-0.5] * 3]
    assert chosen.totals.tolist() == [[-1.5, -2.5, -np.inf]]


def numbered(groups: int, count: int) -> Candidates:
    """Makes candidates that are all different."""
    parts = (100 * part + np.arange(groups * count).reshape(groups, count) for part in range(4))
    beams, words, found, totals = parts
    return Candidates(beams, words, found.astype(float), totals.astype(float))


def test_candidates_are_taken_by_place_and_by_search() -> None:
    all_of_them = numbered(2, 3)
    some = all_of_them.at(np.array([[2, 0], [1, 1]]))
    assert some.beams.tolist() == [[2, 0], [4, 4]]
    assert some.totals.tolist() == [[302.0, 300.0], [304.0, 304.0]]
    assert all_of_them.of(1).tokens.tolist() == [103, 104, 105]
    assert all_of_them.of(np.array([False, True])).tokens.tolist() == [[103, 104, 105]]


def test_what_is_missing_among_others_does_not_count() -> None:
    all_of_them = numbered(2, 3)
    all_of_them.put(1, numbered(1, 2))
    assert all_of_them.tokens[:, :2].tolist() == [[100, 101], [100, 101]]
    assert all_of_them.totals.tolist() == [[300.0, 301.0, 302.0], [300.0, 301.0, -np.inf]]


def next_beams(ends: list[bool], beams: int) -> list[int]:
    """Replaces each that ends by the next that does not, while there is one."""
    spares = (place for place in range(beams, len(ends)) if not ends[place])
    return [next(spares, place) if ends[place] else place for place in range(beams)]


@SETTINGS
@given(data=st.data(), beams=st.integers(1, 5), spares=st.integers(0, 6), groups=st.integers(1, 4))
def test_each_that_ends_is_replaced_by_the_next_that_does_not(
    data: st.DataObject, beams: int, spares: int, groups: int
) -> None:
    count = beams + spares
    ends = data.draw(
        st.lists(
            st.lists(st.booleans(), min_size=count, max_size=count),
            min_size=groups,
            max_size=groups,
        )
    )
    places = select_next(np.array(ends), beams)
    assert places.tolist() == [next_beams(row, beams) for row in ends]


@SETTINGS
@given(seed=SEEDS, groups=st.integers(1, 4), size=st.integers(2, 5))
def test_next_rows_hold_what_their_parents_held_with_few_copies(
    seed: int, groups: int, size: int
) -> None:
    random = np.random.default_rng(seed)
    rows = random.permutation(groups * size + 3)[: groups * size].reshape(groups, size)
    parents = random.integers(0, size, rows.shape)
    held = random.permutation(1000)[: rows.max() + 1]
    moves = reorder(rows, parents)
    after = held.copy()
    after[moves.targets] = held[moves.sources]
    np.testing.assert_array_equal(
        after[moves.rows], np.take_along_axis(held[rows], parents, axis=1)
    )
    # Each search keeps its rows, every beam has one of its own, and none that is read is written.
    np.testing.assert_array_equal(np.sort(moves.rows), np.sort(rows))
    assert not set(moves.sources.tolist()) & set(moves.targets.tolist())
    distinct = sum(len(set(row)) for row in parents.tolist())
    assert len(moves.sources) == len(moves.targets) == rows.size - distinct


@pytest.mark.parametrize(
    ("parents", "rows", "copies"),
    [
        ([0, 1, 2], [6, 4, 5], {}),
        # In another order only.
        ([2, 0, 1], [5, 6, 4], {}),
        # The first child stays where its parent was.
        ([1, 1, 2], [4, 6, 5], {6: 4}),
        ([2, 2, 2], [5, 6, 4], {6: 5, 4: 5}),
        ([2, 0, 2], [5, 6, 4], {4: 5}),
    ],
)
def test_first_child_takes_its_parents_row(
    parents: list[int], rows: list[int], copies: dict[int, int]
) -> None:
    moves = reorder(np.array([[6, 4, 5]]), np.array([parents]))
    assert moves.rows.tolist() == [rows]
    assert dict(zip(moves.targets.tolist(), moves.sources.tolist(), strict=True)) == copies


def test_rows_and_beams_are_left_as_they_are() -> None:
    rows, beams = np.array([[3, 1], [0, 2]]), np.array([[1, 1], [0, 0]])
    before: list[Array] = [rows.copy(), beams.copy()]
    reorder(rows, beams)
    np.testing.assert_array_equal([rows, beams], before)
