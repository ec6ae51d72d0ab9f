from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.fake_runtime import FakeRuntime

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.rows import Rows

SLOTS, LONGEST = 4, 6
RANKING, OTHER = [(5, -0.5), (6, -1.0)], [(7, -0.25)]


def made_rows() -> Rows:
    return Rows(SlotCache(FakeRuntime(), SLOTS), LONGEST)


def filled(*rows: list[tuple[int, float]]) -> Rows:
    """Appends tokens to rows, each with its log-probability."""
    made = made_rows()
    for row, tokens in enumerate(rows):
        for length, (token, found) in enumerate(tokens, 1):
            append(made, [row], length, [token], [found])
    return made


def append(rows: Rows, some: Any, length: Any, tokens: Any, found: Any) -> None:
    rows.append(np.array(some), length, np.array(tokens), np.array(found))


def branch(rows: Rows, sources: list[int], targets: list[int], length: int) -> None:
    rows.branch(np.array(sources), np.array(targets), length)


def test_words_and_their_log_probabilities_are_kept_in_order() -> None:
    rows = filled([(5, -0.5), (6, math.nan), (7, -0.25)])
    assert rows.output(0, 3) == [5, 6, 7]
    assert rows.output(0, 2) == [5, 6]
    said = rows.hypothesis(0, 3)
    assert said.token_ids == [5, 6, 7]
    assert said.log_probabilities == pytest.approx([-0.5, math.nan, -0.25], nan_ok=True)
    assert (said.score, said.top_tokens) == (0.0, [])


def test_nothing_is_said_at_the_beginning() -> None:
    assert made_rows().output(0, 0) == []
    assert made_rows().hypothesis(0, 0) == ([], [], 0.0, [])


def test_what_is_told_are_plain_numbers() -> None:
    said = filled([(5, -0.5)]).hypothesis(0, 1)
    assert type(said.token_ids[0]) is int
    assert type(said.log_probabilities[0]) is float


def test_rows_of_different_length_speak_at_once() -> None:
    rows = filled([(5, -1.0)], [(6, -1.0), (7, -1.0)])
    append(rows, [1, 0], np.array([3, 2]), [9, 8], [-0.5, -0.25])
    assert (rows.output(0, 2), rows.output(1, 3)) == ([5, 8], [6, 7, 9])
    assert rows.hypothesis(1, 3).log_probabilities == [-1.0, -1.0, -0.5]


def test_beams_of_searches_speak_at_once() -> None:
    rows = made_rows()
    append(rows, [[3, 1], [0, 2]], np.array([[1], [2]]), [[4, 5], [6, 7]], np.zeros((2, 2)))
    assert [rows.output(row, 2) for row in range(SLOTS)] == [[0, 6], [5, 0], [0, 7], [4, 0]]


def test_log_probabilities_are_not_rounded() -> None:
    assert filled([(5, -1 / 3)]).hypothesis(0, 1).log_probabilities == [-1 / 3]


def test_longest_target_fits() -> None:
    words = [(word, -float(word)) for word in range(1, LONGEST + 1)]
    assert filled(words).output(0, LONGEST) == [word for word, _ in words]


def test_branch_copies_what_was_said_and_listed() -> None:
    rows = filled([(5, -0.5), (6, -0.25)], [(7, -1.0), (8, -1.0)])
    rows.append_top(0, RANKING)
    rows.append_top(0, OTHER)
    branch(rows, [0, 0], [3, 1], 2)
    ought = rows.hypothesis(0, 2)
    assert ought == ([5, 6], [-0.5, -0.25], 0.0, [RANKING, OTHER])
    assert rows.hypothesis(3, 2) == rows.hypothesis(1, 2) == ought


def test_branches_go_on_apart() -> None:
    rows = filled([(5, -0.5)])
    rows.append_top(0, RANKING)
    branch(rows, [0], [1], 1)
    append(rows, [0, 1], 2, [6, 7], [-1.0, -2.0])
    rows.append_top(1, OTHER)
    assert rows.hypothesis(0, 2) == ([5, 6], [-0.5, -1.0], 0.0, [RANKING])
    assert rows.hypothesis(1, 2) == ([5, 7], [-0.5, -2.0], 0.0, [RANKING, OTHER])


def test_branch_copies_no_more_than_was_said() -> None:
    """So that a step costs what its rows hold, and not what they may come to hold."""
    rows = filled([(5, -0.5), (6, -0.5), (7, -0.5)], [(1, -1.0), (2, -1.0), (3, -1.0)])
    branch(rows, [0], [1], 2)
    assert rows.output(1, 3) == [5, 6, 3]


def test_row_that_has_left_leaves_no_ranking_behind() -> None:
    rows = filled([(5, -0.5)])
    rows.append_top(0, RANKING)
    rows.leave(0)
    rows.leave(1)
    assert rows.hypothesis(0, 1).top_tokens == []
