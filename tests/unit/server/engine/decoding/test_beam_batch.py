from typing import Any
from unittest import mock

import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    Rig,
    after,
    always,
    decode,
    outputs_of,
    random_table,
)

from seqserve_server.contract.events import Finished
from seqserve_server.engine.request import Request

BEAM: dict[str, Any] = {
    "beam_size": 3,
    "num_hypotheses": 3,
    "return_top_tokens": 2,
    "min_decoding_length": 4,
    "return_token_scores": True,
}


def copies_of_a_step(rig: Rig) -> list[tuple[int, int]]:
    """Runs a step; gives source and target of each row that it copied."""
    with mock.patch.object(rig.cache, "branch", wraps=rig.cache.branch) as branch:
        rig.step()
    return [
        pair
        for call in branch.call_args_list
        for pair in zip(*(array.tolist() for array in call.args[:2]), strict=True)
    ]


@pytest.mark.parametrize(
    ("tree", "outputs", "copies"),
    [
        ({(A,): {C: 1.0}, (B,): {D: 1.0}}, [(A, C), (B, D)], []),
        # The second beam becomes the better one.
        ({(A,): {C: 0.5, EOS: 0.3, D: 0.2}, (B,): {D: 1.0}}, [(A, C), (B, D)], []),
        ({(A,): {C: 0.75, D: 0.25}, (B,): {EOS: 1.0}}, [(A, C), (A, D)], [(1, 0)]),
    ],
    ids=["same order", "another order", "two children of one beam"],
)
def test_only_the_second_child_of_a_beam_is_copied(
    tree: Any, outputs: list[tuple[int, ...]], copies: list[tuple[int, int]]
) -> None:
    rig = Rig()
    rig.join([1, 0], after({(): {A: 0.6, B: 0.4}, **tree}), beam_size=2)
    rig.step()
    assert [rig.output(row) for row in (1, 0)] == [(A,), (B,)]
    assert copies_of_a_step(rig) == copies
    assert [rig.output(row) for row in (1, 0)] == outputs


def test_each_search_copies_only_between_its_own_rows() -> None:
    rig = Rig()
    table = after({(): {A: 0.9, B: 0.1}, (A,): {C: 0.6, D: 0.4}})
    for rows in ([4, 1], [0, 5], [3, 2]):
        rig.join(rows, table, beam_size=2)
    rig.step()
    assert sorted(copies_of_a_step(rig)) == [(0, 5), (3, 2), (4, 1)]
    assert {rig.output(row) for row in (0, 3, 4)} == {(A, C)}
    assert {rig.output(row) for row in (1, 2, 5)} == {(A, D)}


def test_searches_that_start_at_different_steps_find_what_each_finds_alone() -> None:
    rig, requests = Rig(slots=18), []
    found: list[tuple[Request, Finished]] = []
    for seed in range(6):
        rows = range(len(rig.running), len(rig.running) + 3)
        requests.append(rig.join(rows, random_table(seed), **BEAM))
        found += rig.step().finished
        rig.compact()
    found += rig.finish()
    assert len(found) == len(requests)
    for seed, request in enumerate(requests):
        [hypotheses] = [finished.hypotheses for owner, finished in found if owner is request]
        assert hypotheses == decode(random_table(seed), **BEAM)


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_search_may_move_at_every_step(seed: int) -> None:
    rig = Rig(slots=4)
    request = rig.join([0, 1, 2], random_table(seed), **BEAM)
    free, found = 3, []
    while rig.running:
        found += rig.step().finished
        if rig.running:
            row = sorted(rig.running)[seed % 3]
            rig.move(row, free)
            free = row
    [(owner, finished)] = found
    assert owner is request
    assert finished.hypotheses == decode(random_table(seed), **BEAM)


def test_a_search_that_leaves_changes_no_other_search() -> None:
    rig, options = Rig(slots=9), BEAM | {"min_decoding_length": 9}
    requests = [
        rig.join(range(3 * seed, 3 * seed + 3), random_table(seed), **options) for seed in range(3)
    ]
    rig.step()
    rig.step()
    rig.leave(3, 4, 5)
    rig.compact()
    found = rig.finish()
    assert [owner for owner, _ in found] == [requests[0], requests[2]]
    for seed, (_, finished) in zip((0, 2), found, strict=True):
        assert finished.hypotheses == decode(random_table(seed), **options)


def test_a_search_that_ends_changes_no_other_search() -> None:
    rig = Rig()
    short, long = after({(): {EOS: 0.6, A: 0.4}}), always({A: 0.6, B: 0.4})
    requests = [
        rig.join(rows, table, beam_size=2, num_hypotheses=2)
        for rows, table in (([0, 7], long), ([1, 6], short), ([2, 5], long), ([4, 3], short))
    ]
    assert rig.step() == ([], [])
    done = rig.step()
    assert done.rows == [1, 3, 4, 6]
    assert [request for request, _ in done.finished] == [requests[1], requests[3]]
    for _, finished in done.finished:
        assert outputs_of(finished.hypotheses) == [[A], []]
    for _ in range(6):
        assert rig.step() == ([], [])
    done = rig.step()
    assert done.rows == [0, 2, 5, 7]
    for _, finished in done.finished:
        assert [len(output) for output in outputs_of(finished.hypotheses)] == [9, 9]


def test_searches_with_different_options_find_what_each_finds_alone() -> None:
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
    rig, requests = Rig(slots=3 * len(kinds)), []
    for kind in kinds:
        rows = range(len(rig.running), len(rig.running) + 3)
        requests.append(rig.join(rows, table, beam_size=3, **kind))
    found = rig.finish()
    for kind, request in zip(kinds, requests, strict=True):
        [hypotheses] = [finished.hypotheses for owner, finished in found if owner is request]
        assert repr(hypotheses) == repr(decode(table, beam_size=3, **kind))


def test_rows_of_the_last_search_move_to_the_front_until_it_ends() -> None:
    rig, table = Rig(slots=8), always({A: 0.6, B: 0.4})
    requests = [
        rig.join([2 * n, 2 * n + 1], table, beam_size=2, max_decoding_length=2 + n)
        for n in range(4)
    ]
    assert [owner for owner, _ in rig.finish()] == requests


def test_each_beam_suppresses_the_tokens_of_its_own_hypothesis() -> None:
    table, rig = always({A: 0.6, B: 0.3, C: 0.1}), Rig()
    rig.join([1, 0, 2], table, beam_size=3, no_repeat_ngram_size=1, max_decoding_length=3)
    for _ in range(2):
        rig.step()
        for row in rig.running:
            assert len(set(rig.output(row))) == len(rig.output(row))
    [(_, finished)] = rig.step().finished
    assert finished.best.token_ids == [A, B, C]
    # The next request in these rows may generate every token.
    rig.join([0], always({A: 1.0}), max_decoding_length=2)
    rig.step()
    assert rig.step().finished[0][1].best.token_ids == [A, A]
