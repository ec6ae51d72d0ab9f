import math
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    FORK,
    A,
    B,
    C,
    D,
    Rig,
    SingleRequest,
    after,
    decode,
    log,
    make_options,
    outputs_of,
    pairs_of,
    top_tokens_of,
)

from seqserve_server.contract.events import Hypothesis, StopReason
from seqserve_server.engine.decoding.logits import RankedTokens
from seqserve_server.engine.decoding.proposals import alternative

each_beam_size = pytest.mark.parametrize("beam_size", [1, 2])


def alternatives(count: int, beam_size: int, **options: Any) -> list[Hypothesis]:
    options = {"return_alternatives": True, "num_hypotheses": count} | options
    return decode(options.pop("table", FORK), beam_size=beam_size, **options)


@pytest.mark.parametrize(
    ("beam_size", "outputs", "probabilities"),
    [
        (1, [[A, A], [B], [C], []], [(0.5, 0.6, 0.4), (0.3, 0.5), (0.15, 0.9), (0.05,)]),
        (2, [[A, B], [B, D], [C], []], [(0.5, 0.4, 0.9), (0.3, 0.5, 0.9), (0.15, 0.9), (0.05,)]),
    ],
    ids=["greedy", "beam"],
)
def test_alternatives_are_the_best_after_each_of_the_most_probable_first_tokens(
    beam_size: int, outputs: list[list[int]], probabilities: list[tuple[float, ...]]
) -> None:
    found = alternatives(4, beam_size)
    assert outputs_of(found) == outputs
    assert [one.score for one in found] == [log(*each) for each in probabilities]
    score = math.log(math.prod(probabilities[0]))
    assert found[0].normalized_score == pytest.approx(score / 3, abs=1e-6)


@each_beam_size
def test_alternatives_differ_in_the_first_token_after_the_prefix(beam_size: int) -> None:
    table = after({(D, C): {A: 0.6, B: 0.4}, (D, C, A): {EOS: 0.9, A: 0.1}, (D, C, B): {D: 1.0}})
    options: dict[str, Any] = {"return_token_scores": True, "return_top_tokens": 2}
    first, second = alternatives(2, beam_size, table=table, prefix=(D, C), **options)
    assert (first.token_ids, second.token_ids) == ([D, C, A], [D, C, B, D])
    assert second.score == log(0.4)
    assert second.token_scores == pytest.approx(
        [math.nan, math.nan, math.log(0.4), 0.0, 0.0], nan_ok=True, abs=1e-6
    )
    best = [(A, log(0.6)), (B, log(0.4))]
    last = [(EOS, log(0.9)), (A, log(0.1))]
    assert pairs_of(first) == [[], [], best, last]
    assert pairs_of(second)[:3] == [[], [], best]
    # The other tokens are equally improbable.
    assert top_tokens_of(second)[3:] == [[D, EOS], [EOS, A]]


@each_beam_size
@pytest.mark.parametrize(
    ("probability", "count"), [(0.0, 4), (0.051, 3), (0.2, 2), (0.29, 2), (0.31, 1), (1.0, 1)]
)
def test_improbable_alternatives_are_left_out_but_never_the_first(
    beam_size: int, probability: float, count: int
) -> None:
    found = alternatives(4, beam_size, min_alternative_expansion_prob=probability)
    assert found == alternatives(4, beam_size)[:count]


@pytest.mark.parametrize(
    ("rows", "free", "outputs"),
    [([3, 0, 1], [1], [[A, A], [B]]), ([5, 0, 1, 2, 4, 3], [3, 4], [[A, B], [B, D]])],
    ids=["greedy", "beam"],
)
def test_rows_of_an_improbable_alternative_are_free_at_once(
    rows: list[int], free: list[int], outputs: list[list[int]]
) -> None:
    rig = Rig()
    options = {"return_alternatives": True, "min_alternative_expansion_prob": 0.2}
    rig.join(rows, FORK, beam_size=len(rows) // 3, num_hypotheses=3, **options)
    assert rig.step() == (free, [])
    assert set(rig.running) == set(rows) - set(free)
    [(_, finished)] = rig.finish()
    assert outputs_of(finished.hypotheses) == outputs


@each_beam_size
def test_alternatives_may_begin_at_the_maximum_length(beam_size: int) -> None:
    found = alternatives(2, beam_size, prefix=(A, A), max_decoding_length=3)
    assert outputs_of(found) == [[A, A], [A, A, A]]
    assert [one.stop_reason for one in found] == [StopReason.EOS, StopReason.LENGTH]


def test_the_search_of_an_alternative_ends_once_its_own_best_beam_ends() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {EOS: 0.6, C: 0.4}, (B,): {EOS: 0.6, C: 0.4}})
    options = {"beam_size": 2, "return_alternatives": True, "num_hypotheses": 2}
    single = SingleRequest(table, length_penalty=0.0, **options)
    assert outputs_of(single.finish()) == [[A], [B]]
    assert single.num_steps == 2


def first_tokens(found: RankedTokens, **options: Any) -> list[tuple[int, Any] | None]:
    """Gives the first token of each of four alternatives."""
    some = make_options(return_alternatives=True, num_hypotheses=4, **options)
    return [alternative(found, index, some) for index in range(4)]


def test_an_alternative_of_exactly_the_minimum_probability_stays() -> None:
    level = RankedTokens(np.array([7, 5, 6]), np.array([0.0, 0.0, -1e-3]))
    found = first_tokens(level, min_alternative_expansion_prob=1.0)
    assert found == [(7, 0.0), (5, 0.0), None, None]


def test_a_suppressed_token_is_no_alternative() -> None:
    suppressed = RankedTokens(np.array([7, 5, 6]), np.array([0.0, -80.0, -1e30]))
    assert first_tokens(suppressed) == [(7, 0.0), (5, -80.0), None, None]
