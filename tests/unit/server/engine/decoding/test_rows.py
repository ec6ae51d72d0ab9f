"""The state of rows: tokens, scores and top tokens; join, move, branch and leave."""

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    VOCABULARY_SIZE,
    TableRuntime,
    make_options,
    make_request,
    make_sampling,
    text_of,
)

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.constraints import Constraints
from seqserve_server.engine.decoding.hypotheses import HypothesisPool
from seqserve_server.engine.decoding.rows import NEVER, Rows

SLOTS, MAX_LENGTH = 6, 6
TOP_TOKENS, OTHER_TOP_TOKENS = [(5, -0.5), (6, -1.0)], [(7, -0.25)]


def make_rows(*contents: list[tuple[int, float]]) -> Rows:
    """Makes rows that hold tokens, each with its log-probability."""
    rows = Rows(SlotCache(TableRuntime(), SLOTS), MAX_LENGTH)
    for row, tokens in enumerate(contents):
        for length, (token, log_probability) in enumerate(tokens, 1):
            append(rows, [row], length, [token], [log_probability])
    return rows


def append(rows: Rows, some: Any, length: Any, tokens: Any, found: Any) -> None:
    rows.append(np.array(some), length, np.array(tokens), np.array(found))


def branch(rows: Rows, sources: list[int], targets: list[int], length: int) -> None:
    rows.branch(np.array(sources), np.array(targets), length)


def join(rows: Rows, some: list[int], **options: Any) -> None:
    """Starts the rows of a request."""
    request = make_request([EOS], make_options(**{"max_decoding_length": MAX_LENGTH} | options))
    constraints = Constraints(request.options, EOS, range(VOCABULARY_SIZE), text_of)
    rows.join(some, HypothesisPool(request, constraints, len(some)))


def test_tokens_and_log_probabilities_are_kept_in_order_as_plain_numbers() -> None:
    rows = make_rows([(5, -1 / 3), (6, math.nan), (7, -0.25)])
    assert rows.output(0, 3) == [5, 6, 7]
    assert rows.output(0, 2) == [5, 6]
    found = rows.hypothesis(0, 3)
    assert found.token_ids == [5, 6, 7]
    assert found.log_probabilities == pytest.approx([-1 / 3, math.nan, -0.25], nan_ok=True)
    assert found.log_probabilities[0] == -1 / 3, "it is rounded"
    assert (found.score, found.top_tokens) == (0.0, [])
    assert type(found.token_ids[0]) is int
    assert type(found.log_probabilities[0]) is float


def test_a_new_row_is_empty() -> None:
    assert make_rows().output(0, 0) == []
    assert make_rows().hypothesis(0, 0) == ([], [], 0.0, [])


def test_rows_of_different_lengths_are_appended_to_at_once() -> None:
    rows = make_rows([(5, -1.0)], [(6, -1.0), (7, -1.0)])
    append(rows, [1, 0], np.array([3, 2]), [9, 8], [-0.5, -0.25])
    assert (rows.output(0, 2), rows.output(1, 3)) == ([5, 8], [6, 7, 9])
    assert rows.hypothesis(1, 3).log_probabilities == [-1.0, -1.0, -0.5]


def test_all_beams_of_many_searches_are_appended_to_at_once() -> None:
    rows = make_rows()
    append(rows, [[3, 1], [0, 2]], np.array([[1], [2]]), [[4, 5], [6, 7]], np.zeros((2, 2)))
    assert [rows.output(row, 2) for row in range(4)] == [[0, 6], [5, 0], [0, 7], [4, 0]]


def test_a_target_of_maximum_length_fits() -> None:
    tokens = [(token, -float(token)) for token in range(1, MAX_LENGTH + 1)]
    assert make_rows(tokens).output(0, MAX_LENGTH) == [token for token, _ in tokens]


def test_a_branch_copies_tokens_and_top_tokens() -> None:
    rows = make_rows([(5, -0.5), (6, -0.25)], [(7, -1.0), (8, -1.0)])
    rows.append_top(0, TOP_TOKENS)
    rows.append_top(0, OTHER_TOP_TOKENS)
    branch(rows, [0, 0], [3, 1], 2)
    expected = rows.hypothesis(0, 2)
    assert expected == ([5, 6], [-0.5, -0.25], 0.0, [TOP_TOKENS, OTHER_TOP_TOKENS])
    assert rows.hypothesis(3, 2) == rows.hypothesis(1, 2) == expected


def test_branches_of_a_row_continue_apart() -> None:
    rows = make_rows([(5, -0.5)])
    rows.append_top(0, TOP_TOKENS)
    branch(rows, [0], [1], 1)
    append(rows, [0, 1], 2, [6, 7], [-1.0, -2.0])
    rows.append_top(1, OTHER_TOP_TOKENS)
    assert rows.hypothesis(0, 2) == ([5, 6], [-0.5, -1.0], 0.0, [TOP_TOKENS])
    assert rows.hypothesis(1, 2) == ([5, 7], [-0.5, -2.0], 0.0, [TOP_TOKENS, OTHER_TOP_TOKENS])


def test_a_branch_copies_no_more_tokens_than_rows_hold() -> None:
    """A step's cost grows with the tokens stored, not with the capacity."""
    rows = make_rows([(5, -0.5), (6, -0.5), (7, -0.5)], [(1, -1.0), (2, -1.0), (3, -1.0)])
    branch(rows, [0], [1], 2)
    assert rows.output(1, 3) == [5, 6, 3]


def test_beams_of_one_search_share_one_list_of_rows() -> None:
    rows = make_rows()
    join(rows, [0, 1, 2, 3], beam_size=2, num_hypotheses=2, return_alternatives=True)
    assert [rows.states[row].beams for row in range(4)] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [rows.states[row].index for row in range(4)] == [0, 0, 1, 1]
    assert rows.states[0].beams is rows.states[1].beams


def test_a_row_that_moves_is_renamed_in_its_beam_search() -> None:
    rows = make_rows()
    join(rows, [0, 1], beam_size=2)
    join(rows, [3, 2], beam_size=2)
    rows.move(2, 5)
    assert rows.states[3].beams == rows.states[5].beams == [3, 5]
    assert rows.states[0].beams == [0, 1]
    assert sorted(rows.states) == [0, 1, 3, 5]


def test_a_row_that_moves_takes_its_state_along() -> None:
    rows = make_rows([], [(5, -0.5)])
    sampling = make_sampling(temperature=0.5, top_k=3)
    join(rows, [1], sampling=sampling, stops=("x",), max_decoding_length=4)
    rows.scores[1] = -0.5
    rows.append_top(1, TOP_TOKENS)
    random = rows.random[1].copy()
    state = rows.states[1]
    rows.move(1, 4)
    assert rows.states == {4: state}
    assert state.beams == [4]
    assert rows.hypothesis(4, 1) == ([5], [-0.5], -0.5, [TOP_TOKENS])
    assert rows.max_lengths[4] == 4
    assert [float(array[4]) for array in rows.sampling] == [0.5, 3, 1, 0]
    np.testing.assert_array_equal(rows.random[4], random)
    assert all(flag[4] and not flag[1] for flag in (rows.has_no_beam, rows.samples))
    assert (rows.inspected_from[4], rows.inspected_from[1]) == (0, NEVER)
    assert rows.num_without_beam == 1


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_row_that_leaves_lifts_its_mask_and_leaves_nothing_behind(beam_size: int) -> None:
    rows, some = make_rows([(5, -0.5)]), list(range(beam_size))
    join(rows, some, beam_size=beam_size, min_decoding_length=2)
    assert [rows.cache.suppressed(row) for row in some] == [[EOS]] * beam_size
    rows.append_top(0, TOP_TOKENS)
    state = rows.states[0]
    for row in some:
        rows.leave(row)
    assert rows.states == {}
    assert state.beams == []
    assert rows.hypothesis(0, 1).top_tokens == []
    assert rows.num_without_beam == 0
    assert not rows.has_no_beam.any()
    assert (rows.inspected_from == NEVER).all()
    assert not (rows.samples.any() or rows.samples_all.any())
    rows.cache.assert_idle()


def test_a_row_that_never_joined_may_leave() -> None:
    assert make_rows().leave(1) is None
