import math
from typing import Any
from unittest import mock

import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    FORK,
    VOCABULARY_SIZE,
    A,
    B,
    C,
    D,
    Rig,
    SingleRequest,
    after,
    always,
    decode,
    log,
    outputs_of,
    random_table,
)

from seqserve_server.contract.events import StopReason

# The most probable first token leads to an improbable end.
TRAP = after({(): {A: 0.6, B: 0.4}, (A,): {EOS: 0.4, C: 0.3, D: 0.3}, (B,): {EOS: 0.9, C: 0.1}})


@pytest.mark.parametrize("return_scores", [True, False])
def test_hypotheses_come_best_first_with_the_sum_of_their_log_probabilities(
    return_scores: bool,
) -> None:
    first, second = decode(TRAP, beam_size=2, num_hypotheses=2, return_scores=return_scores)
    assert (first.token_ids, second.token_ids) == ([B], [A])
    assert {first.stop_reason, second.stop_reason} == {StopReason.EOS}
    if return_scores:
        assert first.score == log(0.4, 0.9)
        assert second.score == log(0.6, 0.4)
        assert first.normalized_score == pytest.approx((first.score or 0) / 2)
    else:
        assert [(one.score, one.normalized_score) for one in (first, second)] == [(None, None)] * 2


def test_a_beam_wider_than_the_vocabulary_finds_one_hypothesis_for_each_token() -> None:
    size = VOCABULARY_SIZE + 1
    found = decode(random_table(1), beam_size=size, num_hypotheses=size, max_decoding_length=1)
    assert sorted(outputs_of(found)) == [[], *([token] for token in range(1, VOCABULARY_SIZE))]


# One hypothesis ends at each step: the one with the most probable token at every step before.
ENDS_EACH_STEP = always({A: 0.6, EOS: 0.25, B: 0.15})


@pytest.mark.parametrize(
    ("size", "patience", "enough"),
    # Half a hypothesis is rounded up, as in CTranslate2, and a result has at least one.
    [(2, 0.2, 1), (2, 0.5, 1), (2, 1.0, 2), (2, 1.25, 3), (2, 2.0, 4), (3, 1.5, 5), (3, 1.4, 4)],
)
def test_a_search_runs_until_beam_size_times_patience_hypotheses_are_finished(
    size: int, patience: float, enough: int
) -> None:
    single = SingleRequest(ENDS_EACH_STEP, beam_size=size, patience=patience)
    assert single.finish()
    assert single.num_steps == enough


def test_without_a_length_penalty_a_search_ends_once_its_best_beam_ends() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {EOS: 1.0}, (B,): {C: 1.0}, (B, C): {C: 1.0}})
    early = SingleRequest(table, beam_size=2, length_penalty=0.0)
    assert outputs_of(early.finish()) == [[A]]
    assert early.num_steps == 2
    late = SingleRequest(table, beam_size=2, length_penalty=1.0)
    late.finish()
    assert late.num_steps > 2


def test_without_a_length_penalty_a_search_does_not_end_before_its_best_beam() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {C: 1.0}, (A, C): {EOS: 0.9, D: 0.1}})
    single = SingleRequest(table, beam_size=2, length_penalty=0.0)
    single.step()
    assert not single.step(), "the second best beam has ended, with .4"
    assert outputs_of(single.finish()) == [[A, C]]


def test_without_a_length_penalty_a_search_ends_once_enough_hypotheses_are_finished() -> None:
    """The best beam ends in step 2, the second hypothesis in step 3, from a worse beam."""
    table = after(
        {
            (): {A: 0.6, B: 0.3, C: 0.1},
            (A,): {EOS: 1.0},
            (B,): {C: 0.6, D: 0.4},
            (C,): {C: 1.0},
            (B, C): {C: 1.0},
            (B, D): {EOS: 1.0},
            (C, C): {C: 1.0},
        }
    )
    single = SingleRequest(table, beam_size=3, length_penalty=0.0, num_hypotheses=2)
    assert outputs_of(single.finish()) == [[A], [B, D]]
    assert single.num_steps == 3


def test_patience_and_coverage_delay_the_end_even_without_a_length_penalty() -> None:
    options = {"beam_size": 2, "length_penalty": 0.0}
    single = SingleRequest(ENDS_EACH_STEP, patience=1.5, **options)
    single.finish()
    assert single.num_steps == 3
    # A hypothesis that ends later may cover more of the source and rank first.
    table = always({EOS: 0.6, A: 0.3, B: 0.1})
    early = SingleRequest(table, **options)
    late = SingleRequest(table, coverage_penalty=0.5, **options)
    assert (len(early.finish()), len(late.finish())) == (1, 2)
    assert (early.num_steps, late.num_steps) == (1, 2)


def test_every_beam_begins_with_the_forced_prefix_and_is_not_scored_for_it() -> None:
    table = after({(C, D): {A: 0.6, B: 0.4}})
    options = {"beam_size": 2, "num_hypotheses": 2, "prefix": (C, D), "return_token_scores": True}
    single = SingleRequest(table, **options)
    # All beams are alike until the prefix ends; only one is continued then.
    for outputs in [{(C,)}, {(C, D)}, {(C, D, A), (C, D, B)}]:
        single.step()
        assert single.outputs == outputs
    first, second = single.finish()
    assert (first.token_ids, second.token_ids) == ([C, D, A], [C, D, B])
    assert first.score == log(0.6)
    assert first.normalized_score == pytest.approx((first.score or 0) / 4)
    assert first.token_scores == pytest.approx(
        [math.nan, math.nan, math.log(0.6), 0.0], nan_ok=True, abs=1e-6
    )


# Only A and B may be generated, each once.
ONLY_A_AND_B: dict[str, Any] = {
    "suppressed": tuple((token,) for token in range(C, VOCABULARY_SIZE)),
    "no_repeat_ngram_size": 1,
    "min_decoding_length": 9,
}


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 0.1}, {"patience": 9.0}], ids=str)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_beams_end_below_the_minimum_length_where_no_token_is_left(
    size: int, options: dict[str, Any]
) -> None:
    single = SingleRequest(
        random_table(3), beam_size=size, num_hypotheses=size, **ONLY_A_AND_B | options
    )
    found = single.finish()
    assert sorted(outputs_of(found)) == [[A, B], [B, A]]
    assert {one.stop_reason for one in found} == {StopReason.EOS}
    assert all(math.isfinite(one.score or math.nan) for one in found)
    assert single.num_steps == 3


def test_other_beams_take_the_place_of_one_that_has_no_token_left() -> None:
    single = SingleRequest(
        always({A: 0.6, B: 0.3, C: 0.06, D: 0.04}),
        beam_size=2,
        suppressed=tuple((A, token) for token in range(VOCABULARY_SIZE)),
        num_hypotheses=2,
        min_decoding_length=3,
        max_decoding_length=3,
        patience=2.0,
    )
    single.step()
    assert single.outputs == {(A,), (B,)}
    # Only the end may come after A, so both next beams continue B.
    single.step()
    assert single.outputs == {(B, A), (B, B)}
    assert outputs_of(single.finish()) == [[A], [B, A]]


def test_a_prefix_bias_near_one_gives_the_tokens_of_a_forced_prefix() -> None:
    options = {"beam_size": 2, "prefix": (B, C, D), "patience": 4.0}
    preferred = decode(FORK, prefix_bias_beta=1 - 1e-9, **options)
    assert outputs_of(preferred) == outputs_of(decode(FORK, **options)) == [[B, C, D]]


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
