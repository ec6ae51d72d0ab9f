from typing import Any
from unittest import mock

import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    A,
    B,
    C,
    D,
    Rig,
    after,
    always,
    outputs_of,
)


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
