from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from seqserve_server.engine.decoding.token_buffer import TokenBuffer

SLOTS, LONGEST = 4, 6
RANKING, OTHER = [(5, -0.5), (6, -1.0)], [(7, -0.25)]


def told(*rows: list[tuple[int, float]]) -> TokenBuffer:
    """Lets rows say words, each with its log-probability."""
    history = TokenBuffer(SLOTS, LONGEST)
    for row, words in enumerate(rows):
        for length, (word, found) in enumerate(words, 1):
            say(history, [row], length, [word], [found])
    return history


def say(history: TokenBuffer, rows: Any, length: Any, words: Any, found: Any) -> None:
    history.say(np.array(rows), length, np.array(words), np.array(found))


def test_words_and_their_log_probabilities_are_kept_in_order() -> None:
    history = told([(5, -0.5), (6, math.nan), (7, -0.25)])
    assert history.said(0, 3) == [5, 6, 7]
    assert history.said(0, 2) == [5, 6]
    said = history.partial(0, 3, -0.75)
    assert said.token_ids == [5, 6, 7]
    assert said.log_probabilities == pytest.approx([-0.5, math.nan, -0.25], nan_ok=True)
    assert (said.score, said.rankings) == (-0.75, [])


def test_nothing_is_said_at_the_beginning() -> None:
    assert TokenBuffer(SLOTS, LONGEST).said(0, 0) == []
    assert TokenBuffer(SLOTS, LONGEST).partial(0, 0) == ([], [], 0.0, [])


def test_what_is_told_are_plain_numbers() -> None:
    said = told([(5, -0.5)]).partial(0, 1)
    assert type(said.token_ids[0]) is int
    assert type(said.log_probabilities[0]) is float


def test_rows_of_different_length_speak_at_once() -> None:
    history = told([(5, -1.0)], [(6, -1.0), (7, -1.0)])
    say(history, [1, 0], np.array([3, 2]), [9, 8], [-0.5, -0.25])
    assert (history.said(0, 2), history.said(1, 3)) == ([5, 8], [6, 7, 9])
    assert history.partial(1, 3).log_probabilities == [-1.0, -1.0, -0.5]


def test_beams_of_searches_speak_at_once() -> None:
    history = TokenBuffer(SLOTS, LONGEST)
    say(history, [[3, 1], [0, 2]], np.array([[1], [2]]), [[4, 5], [6, 7]], np.zeros((2, 2)))
    assert [history.said(row, 2) for row in range(SLOTS)] == [[0, 6], [5, 0], [0, 7], [4, 0]]


def test_log_probabilities_are_not_rounded() -> None:
    assert told([(5, -1 / 3)]).partial(0, 1).log_probabilities == [-1 / 3]


def test_longest_target_fits() -> None:
    words = [(word, -float(word)) for word in range(1, LONGEST + 1)]
    assert told(words).said(0, LONGEST) == [word for word, _ in words]


def test_branch_copies_what_was_said_and_listed() -> None:
    history = told([(5, -0.5), (6, -0.25)], [(7, -1.0), (8, -1.0)])
    history.rank(0, RANKING)
    history.rank(0, OTHER)
    history.branch([0, 0], [3, 1], 2)
    ought = history.partial(0, 2)
    assert ought == ([5, 6], [-0.5, -0.25], 0.0, [RANKING, OTHER])
    assert history.partial(3, 2) == history.partial(1, 2) == ought


def test_branches_go_on_apart() -> None:
    history = told([(5, -0.5)])
    history.rank(0, RANKING)
    history.branch([0], [1], 1)
    say(history, [0, 1], 2, [6, 7], [-1.0, -2.0])
    history.rank(1, OTHER)
    assert history.partial(0, 2) == ([5, 6], [-0.5, -1.0], 0.0, [RANKING])
    assert history.partial(1, 2) == ([5, 7], [-0.5, -2.0], 0.0, [RANKING, OTHER])


def test_branch_copies_no_more_than_was_said() -> None:
    """So that a step costs what its rows hold, and not what they may come to hold."""
    history = told([(5, -0.5), (6, -0.5), (7, -0.5)], [(1, -1.0), (2, -1.0), (3, -1.0)])
    history.branch([0], [1], 2)
    assert history.said(1, 3) == [5, 6, 3]


def test_row_that_has_left_leaves_no_ranking_behind() -> None:
    history = told([(5, -0.5)])
    history.rank(0, RANKING)
    history.leave(0)
    history.leave(1)
    assert history.partial(0, 1).rankings == []
