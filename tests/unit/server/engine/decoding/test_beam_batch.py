"""Searches of one size side by side: their rows, and what is copied between them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from tests.unit.server.engine.decoding.table import EOS, Rig, Steps, after, always, anything

from seqserve_server.contract.events import Finished
from seqserve_server.engine.request import Request

A, B, C, D, E, F, G = 1, 2, 3, 4, 5, 6, 7


def copies(rows: Rig) -> list[tuple[int, int]]:
    """Steps; gives which rows were copied where."""
    with mock.patch.object(rows.cache, "branch", wraps=rows.cache.branch) as branch:
        rows.step()
    return [
        pair
        for call in branch.call_args_list
        for pair in zip(*(array.tolist() for array in call.args), strict=True)
    ]


def answers(rows: Rig) -> list[tuple[Request, Finished]]:
    """Steps until all have their answer."""
    found = []
    while rows.held:
        found += rows.step().finished
        rows.compact()
    return found


def alone(seed: int, **options: Any) -> Any:
    return Steps(anything(seed), **options).finish()


def test_beam_that_goes_on_stays_where_it_is() -> None:
    rows = Rig()
    table = after({(): {A: 0.6, B: 0.4}, (A,): {C: 1.0}, (B,): {D: 1.0}})
    rows.join([1, 0], table, beam_size=2)
    rows.step()
    assert [rows.said(row) for row in (1, 0)] == [(A,), (B,)]
    assert copies(rows) == []
    assert [rows.said(row) for row in (1, 0)] == [(A, C), (B, D)]


def test_beams_that_only_change_their_order_are_not_copied() -> None:
    rows = Rig()
    table = after({(): {A: 0.6, B: 0.4}, (A,): {C: 0.5, EOS: 0.3, D: 0.2}, (B,): {D: 1.0}})
    rows.join([0, 1], table, beam_size=2)
    rows.step()
    assert copies(rows) == []
    # The second is now the better one.
    assert [rows.said(row) for row in (0, 1)] == [(A, C), (B, D)]


def test_beam_with_two_children_is_copied_once() -> None:
    rows = Rig()
    table = after({(): {A: 0.9, B: 0.1}, (A,): {C: 0.6, D: 0.4}, (B,): {EOS: 1.0}})
    rows.join([0, 1], table, beam_size=2)
    rows.step()
    assert copies(rows) == [(0, 1)]
    assert [rows.said(row) for row in (0, 1)] == [(A, C), (A, D)]


def test_searches_are_copied_each_within_its_rows() -> None:
    rows = Rig()
    table = after({(): {A: 0.9, B: 0.1}, (A,): {C: 0.6, D: 0.4}})
    for places in ([4, 1], [0, 5], [3, 2]):
        rows.join(places, table, beam_size=2)
    rows.step()
    assert sorted(copies(rows)) == [(0, 5), (3, 2), (4, 1)]
    assert {rows.said(row) for row in (0, 3, 4)} == {(A, C)}
    assert {rows.said(row) for row in (1, 2, 5)} == {(A, D)}


def test_searches_of_different_age_are_searched_as_alone() -> None:
    """What is copied for one is no shorter than what the oldest has said."""
    rows, requests = Rig(slots=18), []
    found: list[tuple[Request, Finished]] = []
    for seed in range(6):
        places = range(len(rows.held), len(rows.held) + 3)
        requests.append(rows.join(places, anything(seed), **BEAM))
        found += rows.step().finished
        rows.compact()
    found += answers(rows)
    assert len(found) == len(requests)
    for seed, request in enumerate(requests):
        [ours] = [finished.hypotheses for owner, finished in found if owner is request]
        assert ours == alone(seed, **BEAM)


BEAM: dict[str, Any] = {
    "beam_size": 3,
    "num_hypotheses": 3,
    "return_top_tokens": 2,
    "min_decoding_length": 4,
    "return_token_scores": True,
}


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_search_may_be_moved_at_every_step(seed: int) -> None:
    rows = Rig(slots=4)
    request = rows.join([0, 1, 2], anything(seed), **BEAM)
    hole, found = 3, []
    while rows.held:
        found += rows.step().finished
        if rows.held:
            row = sorted(rows.held)[seed % 3]
            rows.move(row, hole)
            hole = row
    [(owner, finished)] = found
    assert owner is request
    assert finished.hypotheses == alone(seed, **BEAM)


def test_search_that_leaves_takes_none_along() -> None:
    rows = Rig(slots=9)
    requests = [
        rows.join([3 * n, 3 * n + 1, 3 * n + 2], anything(n), **BEAM | {"min_decoding_length": 9})
        for n in range(3)
    ]
    rows.step()
    rows.step()
    rows.leave(3, 4, 5)
    rows.compact()
    found = answers(rows)
    assert [owner for owner, _ in found] == [requests[0], requests[2]]
    for number, (_, finished) in zip((0, 2), found, strict=True):
        assert finished.hypotheses == alone(number, **BEAM | {"min_decoding_length": 9})


def test_search_that_ends_takes_none_along() -> None:
    rows = Rig()
    short, long = after({(): {EOS: 0.6, A: 0.4}}), always({A: 0.6, B: 0.4})
    requests = [
        rows.join(places, table, beam_size=2, num_hypotheses=2)
        for places, table in (([0, 7], long), ([1, 6], short), ([2, 5], long), ([4, 3], short))
    ]
    assert rows.step() == ([], [])
    done = rows.step()
    assert done.rows == [1, 3, 4, 6]
    assert [request for request, _ in done.finished] == [requests[1], requests[3]]
    for _, finished in done.finished:
        assert [one.token_ids for one in finished.hypotheses] == [[A], []]
    for _ in range(6):
        assert rows.step() == ([], [])
    done = rows.step()
    assert done.rows == [0, 2, 5, 7]
    for _, finished in done.finished:
        assert [len(one.token_ids) for one in finished.hypotheses] == [9, 9]


def test_ends_of_one_search_are_not_those_of_another() -> None:
    """Each has end tokens, texts, words it must not say and a longest length of its own."""
    table = always({A: 0.4, B: 0.3, C: 0.2, EOS: 0.1})
    kinds: list[dict[str, Any]] = [
        {},
        {"end_ids": (A,)},
        {"stops": ("abb",)},
        {"max_decoding_length": 3},
        {"min_decoding_length": 6},
        {"suppressed": ((A,), (B, B)), "no_repeat_ngram_size": 2},
        {"prefix": (D, E)},
        {"repetition_penalty": 2.0},
        {"return_alternatives": True},
        {"terms": ((F, G),)},
        {"prefix": (D, E), "prefix_bias_beta": 0.3},
        {"length_penalty": 0.0},
        {"coverage_penalty": 0.5},
        {"patience": 2.0},
        {"return_top_tokens": 5},
    ]
    rows, requests = Rig(slots=3 * len(kinds)), []
    for kind in kinds:
        places = range(len(rows.held), len(rows.held) + 3)
        requests.append(rows.join(places, table, beam_size=3, **kind))
    found = answers(rows)
    for kind, request in zip(kinds, requests, strict=True):
        [ours] = [finished.hypotheses for owner, finished in found if owner is request]
        assert repr(ours) == repr(Steps(table, beam_size=3, **kind).finish())


def test_longest_search_has_room_to_be_moved_about() -> None:
    """As many searches as there are rows for, the last one ending last."""
    rows = Rig(slots=8)
    table = always({A: 0.6, B: 0.4})
    requests = [
        rows.join([2 * n, 2 * n + 1], table, beam_size=2, max_decoding_length=2 + n)
        for n in range(4)
    ]
    assert [owner for owner, _ in answers(rows)] == requests


def test_bans_follow_the_hypotheses_that_they_are_meant_for() -> None:
    table = always({A: 0.6, B: 0.3, C: 0.1})
    rows = Rig()
    rows.join([1, 0, 2], table, beam_size=3, no_repeat_ngram_size=1, max_decoding_length=3)
    for _ in range(2):
        rows.step()
        for row in rows.held:
            assert len(set(rows.said(row))) == len(rows.said(row))
    [(_, finished)] = rows.step().finished
    assert finished.best.token_ids == [A, B, C]
    # Who comes next may say all.
    rows.join([0], always({A: 1.0}), max_decoding_length=2)
    rows.step()
    assert rows.step().finished[0][1].best.token_ids == [A, A]
