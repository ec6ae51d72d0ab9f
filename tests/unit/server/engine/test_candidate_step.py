"""Sets of candidates: each in groups of its own with its weights, whatever was there before."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from seqserve_server.engine.candidate_step import CandidateBlock, Table
from seqserve_server.engine.packing import Array

VOCABULARY_SIZE, CAPACITY, GROUP, WIDTH, SLOTS = 90, 60, 4, 3, 5
WEIGHTS = np.arange(1, 1 + VOCABULARY_SIZE * WIDTH, dtype=np.float32).reshape(-1, WIDTH)
TABLES = [
    Table("kept_0", (GROUP, WIDTH), np.dtype("f4")),
    Table("kept_1", (WIDTH, GROUP), np.dtype("f4")),
]

SETS = [
    np.sort(np.random.default_rng(n).permutation(VOCABULARY_SIZE)[: 1 + 2 * n]) for n in range(9)
]


def allowed_shape(tokens: int) -> tuple[int, int]:
    return -(-tokens // GROUP), GROUP


class Weights:
    """Gives the weights of tokens, and counts how often."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, tokens: Array) -> list[Array]:
        self.runs += 1
        return [WEIGHTS[tokens], WEIGHTS[tokens].swapaxes(1, 2)]


def make_block(weights: Weights | None = None) -> CandidateBlock:
    return CandidateBlock(CAPACITY, SLOTS, TABLES, weights or Weights(), allowed_shape)


def rows_of_groups(block: CandidateBlock) -> Array:
    shape = block.groups, block.rows
    found: Array = block.inputs["allowed_rows"][: shape[0] * shape[1]].reshape(shape)
    return found


# Which set each row has, in a step; None for none.
steps = st.lists(st.none() | st.integers(0, len(SETS) - 1), min_size=SLOTS, max_size=SLOTS)


@examples(100)
@given(st.lists(steps, min_size=1, max_size=12))
def test_each_candidate_has_one_column_and_its_numbers_there(
    history: list[list[int | None]],
) -> None:
    block = make_block()
    for step in history:
        rows_of = {one: [row for row in range(SLOTS) if step[row] == one] for one in step}
        rows_of.pop(None, None)
        fits = sum(-(-len(SETS[one]) // GROUP) for one in rows_of if one is not None) <= 15
        sets = [SETS[one] for one in rows_of if one is not None]
        assert block.place(sets, list(rows_of.values())) is fits
        if not (fits and sets):
            continue
        columns = [block.columns(tokens) for tokens in sets]
        flat = np.concatenate(columns)
        assert len(set(flat.tolist())) == len(flat)
        assert flat.max() < block.groups * GROUP
        assert block.rows == max(map(len, rows_of.values()))
        # A group that no set has is computed for a row that runs.
        assert rows_of_groups(block).max() < SLOTS
        for tokens, mine, rows in zip(sets, columns, rows_of.values(), strict=True):
            places = mine // GROUP, mine % GROUP
            assert (block.inputs["allowed_tokens"][places] == tokens).all()
            assert (block.inputs["kept_0"][places] == WEIGHTS[tokens]).all()
            assert (block.inputs["kept_1"].swapaxes(1, 2)[places] == WEIGHTS[tokens]).all()
            assert (rows_of_groups(block)[mine // GROUP, : len(rows)] == rows).all()


def test_what_stays_keeps_its_place_and_is_not_written_again() -> None:
    weights = Weights()
    block = make_block(weights)
    block.place(SETS[2:5], [[0], [1], [2]])
    before = [block.columns(tokens).tolist() for tokens in SETS[3:5]]
    block.place([SETS[4], SETS[3]], [[0], [1]])
    assert [block.columns(tokens).tolist() for tokens in SETS[3:5]] == before
    assert weights.runs == 3
    # The groups that are free again are the lowest ones.
    block.place([SETS[4], SETS[3], SETS[1]], [[0], [1], [2]])
    assert block.columns(SETS[1]).tolist() == [0, 1, 2]


def test_equal_sets_of_two_requests_are_two() -> None:
    block = make_block()
    one, other = SETS[5], SETS[5].copy()
    block.place([one, other], [[0], [1]])
    assert not set(block.columns(one)) & set(block.columns(other))


def test_no_set_takes_no_group() -> None:
    block = make_block()
    block.place([SETS[5]], [[0, 3]])
    assert (block.groups, block.rows) == (3, 2)
    assert rows_of_groups(block).tolist() == [[0, 3]] * 3
    block.place([], [])
    assert (block.groups, block.rows) == (0, 1)
