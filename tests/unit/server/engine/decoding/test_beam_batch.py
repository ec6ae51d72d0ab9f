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
