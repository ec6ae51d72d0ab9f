from typing import Any

import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    A,
    B,
    C,
    always,
    decode,
    log,
    make_sampling,
    outputs_of,
)

from seqserve_server.contract.events import StopReason

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
