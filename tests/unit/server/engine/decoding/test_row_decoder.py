import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
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
    make_sampling,
    outputs_of,
    top_tokens_of,
)

from seqserve_server.contract.events import Hypothesis, StopReason

COIN = always({EOS: 0.2, A: 0.5, B: 0.3})


def test_the_end_token_is_suppressed_up_to_the_minimum_length_of_each_row() -> None:
    rig, lengths = Rig(), {}
    for row, min_length in enumerate((2, 4, 0)):
        rig.join([row], always({EOS: 0.9, A: 0.1}), min_decoding_length=min_length)
    for request, found in rig.finish():
        assert found.best.token_ids == [A] * len(found.best.token_ids)
        lengths[request.options.min_decoding_length] = len(found.best.token_ids)
    assert lengths == {0: 0, 2: 2, 4: 4}


def test_scores_are_summed_in_double_precision() -> None:
    table = always({A: 0.9, B: 0.1})
    [plain] = decode(table, max_decoding_length=200)
    [listed] = decode(table, max_decoding_length=200, return_token_scores=True)
    assert plain.score == listed.score == pytest.approx(math.fsum(listed.token_scores), rel=1e-13)


def test_after_a_forced_prefix_the_graphs_own_choice_is_taken() -> None:
    rig = Rig()
    rig.join([0], always({A: 0.6, B: 0.4}), prefix=(C,))
    rig.step()
    with mock.patch.object(rig.cache, "top_tokens", side_effect=AssertionError):
        rig.step()
    assert rig.output(0) == (C, A)


def samples(count: int, seed: int = 7, **options: Any) -> list[Hypothesis]:
    return decode(COIN, sampling=make_sampling(seed), num_hypotheses=count, **options)


@pytest.mark.parametrize("top_k", [0, 5])
def test_a_sample_that_ends_leaves_and_the_answer_comes_with_the_last_one(top_k: int) -> None:
    sampling = make_sampling(top_k=top_k)
    single = SingleRequest(COIN, sampling=sampling, num_hypotheses=4, max_decoding_length=99)
    running = [4]
    while not (found := single.step()):
        running.append(len(single.rig.running))
    assert running == sorted(running, reverse=True)
    assert len(set(running)) > 1, "all end at the same step"
    assert len(found) == 4
    assert max(len(one.token_ids) for one in found) + 1 == single.num_steps


def test_each_sample_has_its_own_random_numbers() -> None:
    """The number of samples, and when the others end, changes none of them."""
    few, many = samples(2, max_decoding_length=30), samples(9, max_decoding_length=30)
    assert all(sample in many for sample in few)


@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("prefix", [(), (C,), (C, D, C)])
def test_a_forced_prefix_uses_up_no_random_number(prefix: tuple[int, ...], top_k: int) -> None:
    options: dict[str, Any] = {"sampling": make_sampling(top_k=top_k)}
    [free] = decode(COIN, max_decoding_length=9, **options)
    [forced] = decode(COIN, max_decoding_length=9 + len(prefix), prefix=prefix, **options)
    assert forced.token_ids == [*prefix, *free.token_ids]
    assert forced.score == free.score


def test_a_target_of_maximum_length_has_a_random_number_for_each_token() -> None:
    length = 300
    [found] = decode(
        COIN, sampling=make_sampling(), max_decoding_length=length, min_decoding_length=length
    )
    assert len(found.token_ids) == length
    random = np.random.default_rng([7, 0])
    numbers = [random.random() for _ in range(length)]
    assert found.token_ids == [A if number < 0.5 / 0.8 else B for number in numbers]


def test_the_newest_token_of_a_row_is_the_forced_one() -> None:
    """Streams get the prefix, not what the graph chose."""
    rig = Rig()
    rig.join([0], always({A: 1.0}), prefix=(C, D))
    for token in (C, D, A):
        rig.step()
        assert rig.search.last_token(0) == token


# Only A and B may be generated, each once.
ONLY_A_AND_B: dict[str, Any] = {
    "suppressed": tuple((token,) for token in range(C, VOCABULARY_SIZE)),
    "no_repeat_ngram_size": 1,
    "return_token_scores": True,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 0.1},
        {"end_ids": (D,), "suppressed": (*ONLY_A_AND_B["suppressed"], (EOS,))},
        {"sampling": make_sampling(temperature=50.0)},
        {"sampling": make_sampling(temperature=50.0, top_k=6)},
        {"sampling": make_sampling(top_p=0.9), "num_hypotheses": 3},
        {"return_alternatives": True, "num_hypotheses": 2, "return_top_tokens": 3},
        {"vocabulary": (EOS, A, B), "suppressed": ()},
    ],
    ids=str,
)
def test_a_row_ends_below_the_minimum_length_where_no_token_is_left(
    options: dict[str, Any],
) -> None:
    for one in decode(COIN, min_decoding_length=9, **ONLY_A_AND_B | options):
        assert sorted(one.token_ids) == [A, B]
        assert one.stop_reason is StopReason.EOS
        # The only token left has probability 1.
        assert one.token_scores == [one.score, pytest.approx(0.0), pytest.approx(0.0)]
        assert all(token in (EOS, A, B) for step in top_tokens_of(one) for token in step)


def test_a_row_may_leave_a_preferred_prefix() -> None:
    table = after({(): {A: 0.7, B: 0.3}, (B,): {A: 0.9, C: 0.1}, (B, A): {C: 0.6, D: 0.4}})
    [found] = decode(table, prefix=(B, C), prefix_bias_beta=0.4, return_token_scores=True)
    assert found.token_ids == [B, A, C]
    assert found.token_scores[:3] == [log(0.6 * 0.3 + 0.4), log(0.6 * 0.9), log(0.6)]


ENDLESS = always({A: 0.6, B: 0.3, EOS: 0.1})
FORCED: dict[str, Any] = {"max_decoding_length": 3, "force_end_token": True}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_top_tokens": 2},
        {"vocabulary": (EOS, A)},
        {"repetition_penalty": 1.0625},
        {"suppressed": ((EOS,),)},
        {"min_decoding_length": 3},
        {"sampling": make_sampling(top_k=1)},
        {"sampling": make_sampling(top_p=0.5)},
        {"prefix": (A, A)},
        {"end_ids": (C, B)},
    ],
    ids=str,
)
def test_last_step_of_a_row_gives_the_end_token(options: dict[str, Any]) -> None:
    [found] = decode(ENDLESS, **FORCED, **options)
    assert found.token_ids == [A, A]
    assert found.stop_reason is StopReason.LENGTH


def test_end_that_is_forced_adds_nothing_to_the_score() -> None:
    [found] = decode(ENDLESS, **FORCED, return_token_scores=True)
    assert found.score == log(0.6, 0.6)
    assert found.token_scores == [log(0.6), log(0.6)]


def test_target_that_ends_before_is_left_alone() -> None:
    ending = always({EOS: 0.9, A: 0.1})
    [found] = decode(ending, **FORCED)
    assert (found.token_ids, found.stop_reason) == ([], StopReason.EOS)
    assert found.score == log(0.9)


def test_all_beams_end_with_the_end_token() -> None:
    found = decode(ENDLESS, **FORCED, beam_size=3, num_hypotheses=3, length_penalty=0.0)
    assert outputs_of(found) == [[A, A], [A, B], [B, A]]
    assert [each.score for each in found] == [log(0.6, 0.6), log(0.6, 0.3), log(0.3, 0.6)]
    assert {each.stop_reason for each in found} == {StopReason.LENGTH}
