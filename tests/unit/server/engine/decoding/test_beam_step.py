import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve_server.engine.decoding.beam_step import (
    Continuations,
    continue_with,
    rank,
    reorder,
    select_next,
)

SETTINGS = settings(deadline=None, max_examples=60)
SEEDS = st.integers(0, 2**32)


@SETTINGS
@given(seed=SEEDS, groups=st.integers(1, 4), size=st.integers(2, 4), each=st.integers(1, 9))
def test_continuations_are_ranked_as_by_a_stable_sort(
    seed: int, groups: int, size: int, each: int
) -> None:
    random = np.random.default_rng(seed)
    # Few values, so that many are equal; minus infinity is a beam that does not count yet.
    scores = random.choice([0.0, -1.0, -2.0, -np.inf], (groups, size))
    tokens = random.integers(0, 50, (groups, size, each))
    found = -random.integers(0, 3, tokens.shape).astype(float)
    ranked = rank(scores, tokens, found)
    for group in range(groups):
        every = [
            (
                beam,
                tokens[group, beam, index],
                found[group, beam, index],
                scores[group, beam] + found[group, beam, index],
            )
            for beam in range(size)
            for index in range(each)
        ]
        best = sorted(every, key=lambda entry: -entry[3])[: 2 * size]
        assert list(zip(*ranked.of(group), strict=True)) == best


def test_beams_that_continue_with_a_forced_token_keep_their_scores() -> None:
    scores = np.array([-1.0, -2.0, -np.inf])
    forced = continue_with(scores, 7, math.nan)
    assert forced.beams.tolist() == [[0, 1, 2]]
    assert forced.tokens.tolist() == [[7, 7, 7]]
    assert np.isnan(forced.log_probabilities).all()
    assert forced.totals.tolist() == [scores.tolist()]
    chosen = continue_with(scores, 7, -0.5)
    assert chosen.log_probabilities.tolist() == [[-0.5] * 3]
    assert chosen.totals.tolist() == [[-1.5, -2.5, -np.inf]]


def distinct_continuations(groups: int, count: int) -> Continuations:
    """Makes continuations of which no two are alike."""
    parts = (100 * part + np.arange(groups * count).reshape(groups, count) for part in range(4))
    beams, tokens, found, totals = parts
    return Continuations(beams, tokens, found.astype(float), totals.astype(float))


def test_replaced_candidates_may_be_fewer_and_missing_ones_do_not_count() -> None:
    continuations = distinct_continuations(2, 3)
    continuations.put(1, distinct_continuations(1, 2))
    assert continuations.tokens[:, :2].tolist() == [[100, 101], [100, 101]]
    assert continuations.totals.tolist() == [[300.0, 301.0, 302.0], [300.0, 301.0, -np.inf]]


def next_beams(ends: list[bool], beams: int) -> list[int]:
    """Replaces each continuation that ends by the next that does not, while there is one."""
    spares = (column for column in range(beams, len(ends)) if not ends[column])
    return [next(spares, column) if ends[column] else column for column in range(beams)]


@SETTINGS
@given(data=st.data(), beams=st.integers(1, 5), spares=st.integers(0, 6), groups=st.integers(1, 4))
def test_each_candidate_that_ends_is_replaced_by_the_next_that_does_not(
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
    ending = [group for group, row in enumerate(ends) if any(row[:beams])]
    columns = select_next(np.array(ends), ending, beams)
    assert columns.tolist() == [next_beams(row, beams) for row in ends]


@SETTINGS
@given(seed=SEEDS, groups=st.integers(1, 4), size=st.integers(2, 5))
def test_each_next_beam_gets_its_parents_content_with_the_fewest_copies(
    seed: int, groups: int, size: int
) -> None:
    random = np.random.default_rng(seed)
    rows = random.permutation(groups * size + 3)[: groups * size].reshape(groups, size)
    parents = random.integers(0, size, rows.shape)
    before = random.permutation(1000)[: rows.max() + 1]
    moves = reorder(rows, parents)
    after = before.copy()
    after[moves.targets] = before[moves.sources]
    np.testing.assert_array_equal(
        after[moves.rows], np.take_along_axis(before[rows], parents, axis=1)
    )
    # Each search keeps its rows, each beam has its own, and no row is both read and written.
    np.testing.assert_array_equal(np.sort(moves.rows), np.sort(rows))
    assert not set(moves.sources.tolist()) & set(moves.targets.tolist())
    distinct = sum(len(set(row)) for row in parents.tolist())
    assert len(moves.sources) == len(moves.targets) == rows.size - distinct
