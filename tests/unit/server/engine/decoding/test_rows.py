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


def test_a_row_that_never_joined_may_leave() -> None:
    assert make_rows().leave(1) is None
