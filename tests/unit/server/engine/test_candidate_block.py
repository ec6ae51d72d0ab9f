"""Candidates in groups: each in one place, with its numbers, whatever joined and left before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from seqserve_server.engine.candidate_block import CandidateBlock
from seqserve_server.engine.candidate_graph import Table

VOCABULARY_SIZE, CAPACITY, GROUP, WIDTH = 90, 60, 4, 3

unions = st.sets(st.integers(0, VOCABULARY_SIZE - 1), min_size=1, max_size=CAPACITY).map(
    lambda tokens: np.array(sorted(tokens))
)


def allowed_shape(tokens: int) -> tuple[int, int]:
    return -(-tokens // GROUP), GROUP


def make_block() -> CandidateBlock:
    numbers = np.arange(1, 1 + VOCABULARY_SIZE * WIDTH).reshape(VOCABULARY_SIZE, WIDTH)
    tables = [
        Table("kept_0", numbers.astype(np.float32), is_turned=False),
        Table("kept_1", numbers.astype(np.float32), is_turned=True),
        Table("kept_2", numbers[:, :1].astype(np.float32), is_turned=True),
    ]
    return CandidateBlock(CAPACITY, VOCABULARY_SIZE, tables, allowed_shape)


@examples(100)
@given(st.lists(unions, min_size=1, max_size=12))
def test_each_candidate_has_one_column_and_its_numbers_there(history: list[np.ndarray]) -> None:
    block = make_block()
    kept = block.inputs
    for union in history:
        block.place(union)
        columns = block.columns[union]
        assert len(set(columns.tolist())) == len(union)
        assert columns.max() < block.groups * GROUP
        assert block.groups <= 5 / 4 * -(-len(union) // GROUP)
        places = columns // GROUP, columns % GROUP
        assert (kept["allowed_tokens"][places] == union).all()
        first = 1 + WIDTH * union
        by_token = first[:, None] + np.arange(WIDTH)
        np.testing.assert_array_equal(kept["kept_0"][places], by_token)
        np.testing.assert_array_equal(kept["kept_1"].swapaxes(1, 2)[places], by_token)
        np.testing.assert_array_equal(kept["kept_2"].swapaxes(1, 2)[places], first[:, None])


def test_tokens_that_stay_keep_their_columns_and_others_take_those_left() -> None:
    block = make_block()
    block.place(np.arange(10, 22))
    before = block.columns[10:22].copy()
    block.place(np.array([10, 11, 12, 20, 21, 30, 31, 40, 41]))
    assert block.groups == 3
    assert block.columns[[10, 11, 12, 20, 21]].tolist() == before[[0, 1, 2, 10, 11]].tolist()
    assert set(block.columns[[30, 31, 40, 41]]) <= set(before[3:10])


def test_numbers_of_a_token_that_comes_back_are_not_written_again() -> None:
    block = make_block()
    block.place(np.arange(10, 22))
    block.inputs["kept_0"][...] = 7
    block.place(np.arange(10, 19))
    block.place(np.arange(10, 22))
    assert (block.inputs["kept_0"][: block.groups] == 7).all()


def test_fewer_candidates_move_into_fewer_groups() -> None:
    block = make_block()
    block.place(np.arange(40))
    assert block.groups == 10
    block.place(np.arange(32, 40))
    assert block.groups == 2
    assert sorted(block.columns[32:40]) == list(range(8))


def test_a_turned_table_lies_in_memory_as_a_step_reads_it() -> None:
    block = make_block()
    assert block.inputs["kept_1"].shape == (CAPACITY // GROUP, WIDTH, GROUP)
    assert all(array.flags.c_contiguous for array in block.inputs.values())
