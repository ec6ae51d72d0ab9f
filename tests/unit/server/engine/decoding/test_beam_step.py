import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve_server.engine.decoding.beam_step import (
    rank,
    reorder,
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
