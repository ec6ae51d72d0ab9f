from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import (
    EOS,
    WORDS,
    Rig,
    Steps,
    Table,
    after,
    always,
    anything,
    log,
    scores_after,
)

from seqserve_server.contract.events import Hypothesis, StopReason

A, B, C, D = 1, 2, 3, 4

# The best first word leads nowhere.
TRAP = after({(): {A: 0.6, B: 0.4}, (A,): {EOS: 0.4, C: 0.3, D: 0.3}, (B,): {EOS: 0.9, C: 0.1}})


def words_of(hypotheses: list[Hypothesis]) -> list[list[int]]:
    return [hypothesis.token_ids for hypothesis in hypotheses]


def test_beam_finds_what_greedy_search_misses() -> None:
    assert words_of(Steps(TRAP).finish()) == [[A]]
    assert words_of(Steps(TRAP, beam_size=2).finish()) == [[B]]


def test_hypotheses_come_best_first_with_the_sum_of_their_log_probabilities() -> None:
    first, second = Steps(TRAP, beam_size=2, num_hypotheses=2).finish()
    assert (first.token_ids, second.token_ids) == ([B], [A])
    assert first.score == log(0.4, 0.9)
    assert second.score == log(0.6, 0.4)
    assert first.normalized_score == pytest.approx((first.score or 0) / 2)
    assert {first.stop_reason, second.stop_reason} == {StopReason.EOS}


def test_as_many_hypotheses_as_asked_for() -> None:
    for count in range(1, 5):
        assert len(Steps(TRAP, beam_size=4, num_hypotheses=count).finish()) == count


def test_beam_wider_than_the_vocabulary_has_no_more_hypotheses_than_words() -> None:
    found = Steps(
        anything(1), beam_size=WORDS + 1, num_hypotheses=WORDS + 1, max_decoding_length=1
    ).finish()
    assert sorted(words_of(found)) == [[], *([word] for word in range(1, WORDS))]


SHORT_OR_LONG = after(
    {
        (): {A: 0.5, B: 0.5},
        (A,): {EOS: 0.5, C: 0.5},
        (A, C): {C: 1.0},
        (A, C, C): {EOS: 0.9, D: 0.1},
        (B,): {D: 1.0},
    }
)


@pytest.mark.parametrize(("penalty", "best"), [(0.0, [B, D]), (1.0, [B, D]), (3.0, [A, C, C])])
def test_long_hypotheses_gain_by_the_length_penalty(penalty: float, best: list[int]) -> None:
    # log .5 over 3 tokens against log .225 over 4, to the power of the penalty
    options = {"beam_size": 3, "patience": 3.0, "length_penalty": penalty, "num_hypotheses": 3}
    found = Steps(SHORT_OR_LONG, **options).finish()
    assert found[0].token_ids == best
    ranks = [hypothesis.normalized_score for hypothesis in found]
    assert ranks == sorted(ranks, reverse=True)
    for hypothesis in found:
        length = len(hypothesis.token_ids) + (hypothesis.stop_reason is StopReason.EOS)
        assert hypothesis.score is not None
        assert hypothesis.normalized_score == pytest.approx(hypothesis.score / length**penalty)


ENDLESS = always({A: 0.6, EOS: 0.25, B: 0.15})


@pytest.mark.parametrize(
    ("size", "patience", "enough"),
    # Half a hypothesis is rounded up, as in CTranslate2, and an answer has at least one.
    [(2, 0.2, 1), (2, 0.5, 1), (2, 1.0, 2), (2, 1.25, 3), (2, 2.0, 4), (3, 1.5, 5), (3, 1.4, 4)],
)
def test_search_goes_on_until_enough_hypotheses_are_finished(
    size: int, patience: float, enough: int
) -> None:
    """Here one ends at each step: that which has said the best word until then."""
    steps = Steps(ENDLESS, beam_size=size, patience=patience)
    assert steps.finish()
    assert steps.taken == enough


def test_without_a_length_penalty_search_ends_with_the_best_beam() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {EOS: 1.0}, (B,): {C: 1.0}, (B, C): {C: 1.0}})
    early = Steps(table, beam_size=2, length_penalty=0.0)
    assert words_of(early.finish()) == [[A]]
    assert early.taken == 2
    patient = Steps(table, beam_size=2, length_penalty=1.0)
    patient.finish()
    assert patient.taken > 2


def test_without_a_length_penalty_search_goes_on_while_the_best_beam_does() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {C: 1.0}, (A, C): {EOS: 0.9, D: 0.1}})
    steps = Steps(table, beam_size=2, length_penalty=0.0)
    steps.step()
    assert not steps.step(), "the second best has ended, with .4"
    assert words_of(steps.finish()) == [[A, C]]


def test_place_of_a_beam_that_ends_is_taken_by_the_next_that_does_not() -> None:
    steps = Steps(after({(): {EOS: 0.5, A: 0.3, B: 0.15, C: 0.05}}), beam_size=2)
    assert not steps.step()
    # The end token is first; the third best word comes in for it.
    assert steps.said == {(A,), (B,)}


def test_end_token_below_the_beam_does_not_end_a_hypothesis() -> None:
    table = after({(): {A: 0.5, B: 0.3, EOS: 0.15, C: 0.05}, (A,): {EOS: 1.0}, (B,): {EOS: 1.0}})
    found = Steps(table, beam_size=2, num_hypotheses=2).finish()
    assert words_of(found) == [[A], [B]]


def test_rows_go_on_from_the_beam_they_come_from() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {C: 0.1, D: 0.1, A: 0.8}, (B,): {C: 0.9, D: 0.1}})
    steps = Steps(table, beam_size=2)
    steps.step()
    assert steps.said == {(A,), (B,)}
    steps.step()
    assert steps.said == {(A, A), (B, C)}


def test_one_beam_may_take_all_places() -> None:
    table = after({(): {A: 0.9, B: 0.1}, (A,): {C: 0.6, D: 0.4}, (B,): {EOS: 1.0}})
    steps = Steps(table, beam_size=2)
    steps.step()
    steps.step()
    assert steps.said == {(A, C), (A, D)}


def test_among_equals_the_first_beam_and_the_first_word_come_first() -> None:
    steps = Steps(always({A: 0.25, B: 0.25, C: 0.25, D: 0.25}), beam_size=2)
    steps.step()
    assert steps.said == {(A,), (B,)}
    steps.step()
    assert steps.said == {(A, A), (A, B)}


def test_order_of_the_beams_is_that_of_their_scores() -> None:
    """Among equals, what goes on from the better beam comes first, whatever row it is in."""
    table = after(
        {
            (): {B: 0.6, A: 0.4},
            (B,): {C: 0.5, EOS: 0.5},
            (A,): {D: 1.0},
            (A, D): {A: 0.75, B: 0.25},
            (B, C): {A: 1.0},
        }
    )
    steps = Steps(table, beam_size=2)
    for said in [{(B,), (A,)}, {(A, D), (B, C)}, {(A, D, A), (B, C, A)}]:
        steps.step()
        assert steps.said == said
    assert words_of(steps.finish())[0] == [A, D, A]


def test_all_hypotheses_end_at_the_longest_length() -> None:
    table = after(
        {
            (): {A: 0.6, B: 0.4},
            (A,): {A: 0.6, B: 0.4},
            (A, A): {A: 0.7, B: 0.3},
            (A, B): {A: 0.9, B: 0.1},
            (B,): {A: 0.25, B: 0.25, C: 0.25, D: 0.25},
        }
    )
    options = {"beam_size": 3, "num_hypotheses": 3, "max_decoding_length": 3}
    found = Steps(table, **options).finish()
    assert words_of(found) == [[A, A, A], [A, B, A], [A, A, B]]
    assert {hypothesis.stop_reason for hypothesis in found} == {StopReason.LENGTH}
    assert found[1].score == log(0.6, 0.4, 0.9)


def test_end_token_in_the_last_place_counts_as_the_end() -> None:
    table = after({(): {A: 1.0}, (A,): {EOS: 0.7, B: 0.3}})
    found = Steps(table, beam_size=2, num_hypotheses=2, max_decoding_length=2).finish()
    assert words_of(found) == [[A], [A, B]]
    assert [one.stop_reason for one in found] == [StopReason.EOS, StopReason.LENGTH]


def test_no_hypothesis_is_shorter_than_the_shortest() -> None:
    table = always({EOS: 0.9, A: 0.06, B: 0.04})
    found = Steps(table, beam_size=2, num_hypotheses=2, min_decoding_length=3).finish()
    assert words_of(found) == [[A, A, A], [A, A, B]]
    # What is forbidden leaves its probability to the others.
    assert found[0].score == log(0.6, 0.6, 0.6, 0.9)


def test_every_beam_begins_with_the_prefix_and_is_not_scored_for_it() -> None:
    table = after({(C, D): {A: 0.6, B: 0.4}})
    options = {"beam_size": 2, "num_hypotheses": 2, "prefix": (C, D), "return_token_scores": True}
    steps = Steps(table, **options)
    # From one of them only: the others are the same.
    for said in [{(C,)}, {(C, D)}, {(C, D, A), (C, D, B)}]:
        steps.step()
        assert steps.said == said
    first, second = steps.finish()
    assert (first.token_ids, second.token_ids) == ([C, D, A], [C, D, B])
    assert first.score == log(0.6)
    assert first.normalized_score == pytest.approx((first.score or 0) / 4)
    assert first.token_scores == pytest.approx(
        [math.nan, math.nan, math.log(0.6), 0.0], nan_ok=True, abs=1e-6
    )


def test_words_that_were_said_are_penalised_in_their_own_beam_only() -> None:
    table = after(
        {
            (): {A: 0.5, B: 0.5},
            (A,): {A: 0.6, B: 0.4},
            (B,): {A: 0.6, B: 0.4},
            (B, A): {EOS: 1.0},
        }
    )
    steps = Steps(table, beam_size=2, repetition_penalty=2.0)
    steps.step()
    steps.step()
    # After A: .6² to .4; after B: .6 to .4²; B A is then the likeliest.
    assert steps.said == {(B, A), (A, B)}
    [best] = steps.finish()
    assert best.token_ids == [B, A]
    assert best.score == log(0.5, 0.6 / (0.6 + 0.4**2))


def test_each_hypothesis_has_its_own_token_scores_and_top_tokens() -> None:
    options = {"beam_size": 2, "num_hypotheses": 2, "return_top_tokens": 2}
    first, second = Steps(TRAP, **options, return_token_scores=True).finish()
    assert [[word for word, _ in step] for step in first.top_tokens] == [[A, B], [EOS, C]]
    assert [[word for word, _ in step] for step in second.top_tokens] == [[A, B], [EOS, C]]
    assert first.top_tokens[1][0][1] == log(0.9)
    assert second.top_tokens[1][0][1] == log(0.4)
    for hypothesis in (first, second):
        assert math.fsum(hypothesis.token_scores) == pytest.approx(hypothesis.score)


def test_more_top_tokens_than_beams_need_are_ranked() -> None:
    found = Steps(TRAP, beam_size=2, return_top_tokens=7).finish()
    assert {len(step) for step in found[0].top_tokens} == {7}


def test_beam_ends_at_a_text_and_its_score_is_of_all_it_said() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {C: 0.9, D: 0.1}, (B,): {C: 1.0}})
    found = Steps(table, beam_size=2, num_hypotheses=2, stops=("ccc",)).finish()
    assert words_of(found) == [[A], [B]]
    assert {one.stop_reason for one in found} == {StopReason.STOP_SEQUENCE}
    assert [one.text_length for one in found] == [1, 2]
    assert found[0].score == log(0.6, 0.9)


def test_score_that_is_not_asked_for_ranks_all_the_same() -> None:
    found = Steps(TRAP, beam_size=2, num_hypotheses=2, return_scores=False).finish()
    assert words_of(found) == [[B], [A]]
    assert [(one.score, one.normalized_score) for one in found] == [(None, None)] * 2


def best_of_all(table: Table, longest: int, penalty: float) -> list[int]:
    """Looks at every hypothesis there is."""
    ranks: dict[tuple[int, ...], float] = {}
    for length in range(1, longest + 1):
        for words in itertools.product(range(WORDS), repeat=length):
            ended = words[-1] == EOS
            if EOS in words[:-1] or (not ended and length < longest):
                continue
            score = 0.0
            for place, word in enumerate(words):
                scores = scores_after(table, words[:place])
                score += scores[word] - np.logaddexp.reduce(scores)
            ranks[words] = score / length**penalty
    best = max(ranks, key=ranks.__getitem__)
    return [word for word in best if word != EOS]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), penalty=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_beam_as_wide_as_all_there_is_finds_the_best_of_all(seed: int, penalty: float) -> None:
    random = np.random.default_rng(seed)
    tree = {
        words: dict(enumerate(random.dirichlet(np.full(WORDS, 0.3)) + 1e-6))
        for length in range(3)
        for words in itertools.product(range(1, WORDS), repeat=length)
    }
    # 7 words of 7 beginnings; patient, so that nothing ends before the last step.
    options = {"beam_size": 49, "patience": 16.0, "max_decoding_length": 3}
    found = Steps(after(tree), length_penalty=penalty, **options).finish()
    assert found[0].token_ids == best_of_all(after(tree), 3, penalty)


def test_without_a_length_penalty_search_goes_on_until_as_many_as_are_wanted_have_ended() -> None:
    """That the best was on top counts also later, when another one ends that is not."""
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
    steps = Steps(table, beam_size=3, length_penalty=0.0, num_hypotheses=2)
    assert words_of(steps.finish()) == [[A], [B, D]]
    assert steps.taken == 3


def test_patience_counts_also_without_a_length_penalty() -> None:
    options = {"beam_size": 2, "length_penalty": 0.0}
    steps = Steps(ENDLESS, patience=1.5, **options)
    steps.finish()
    assert steps.taken == 3
    # What covers more of the source may come out on top though it ends later.
    sure = always({EOS: 0.6, A: 0.3, B: 0.1})
    early, late = Steps(sure, **options), Steps(sure, coverage_penalty=0.5, **options)
    assert (len(early.finish()), len(late.finish())) == (1, 2)
    assert (early.taken, late.taken) == (1, 2)


# Nothing but A and B may be said, each once.
FEW: dict[str, Any] = {
    "suppressed": tuple((word,) for word in range(C, WORDS)),
    "no_repeat_ngram_size": 1,
    "min_decoding_length": 9,
}


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 0.1}, {"patience": 9.0}], ids=str)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_beams_end_where_nothing_is_left_to_say(size: int, options: dict[str, Any]) -> None:
    """Short as they are; search is over, and has no hypothesis of what is forbidden."""
    steps = Steps(anything(3), beam_size=size, num_hypotheses=size, **FEW | options)
    found = steps.finish()
    assert sorted(words_of(found)) == [[A, B], [B, A]]
    assert {one.stop_reason for one in found} == {StopReason.EOS}
    assert all(math.isfinite(one.score or math.nan) for one in found)
    assert steps.taken == 3


def test_beam_that_has_nothing_left_to_say_leaves_its_place_to_others() -> None:
    table = always({A: 0.6, B: 0.3, C: 0.06, D: 0.04})
    options: dict[str, Any] = {"num_hypotheses": 2, "max_decoding_length": 3, "patience": 2.0}
    steps = Steps(
        table,
        beam_size=2,
        suppressed=tuple((A, word) for word in range(WORDS)),
        min_decoding_length=3,
        **options,
    )
    steps.step()
    assert steps.said == {(A,), (B,)}
    # After A there is only the end, and so its place is one more for what comes after B.
    steps.step()
    assert steps.said == {(B, A), (B, B)}
    assert words_of(steps.finish()) == [[A], [B, A]]


FORK = after(
    {
        (): {A: 0.5, B: 0.3, C: 0.15, EOS: 0.05},
        (A,): {A: 0.6, B: 0.4},
        (A, A): {EOS: 0.4, A: 0.3, C: 0.3},
        (A, B): {EOS: 0.9, C: 0.1},
        (B,): {EOS: 0.5, D: 0.5},
        (B, D): {EOS: 0.9, A: 0.1},
        (C,): {EOS: 0.9, D: 0.1},
    }
)


def alternatives(count: int, **options: Any) -> list[Hypothesis]:
    options = {"beam_size": 2, "return_alternatives": True, "num_hypotheses": count} | options
    return Steps(options.pop("table", FORK), **options).finish()


def test_alternatives_are_the_best_of_a_beam_each_in_the_order_of_their_first_words() -> None:
    found = alternatives(4)
    assert words_of(found) == [[A, B], [B, D], [C], []]
    assert [one.score for one in found] == [
        log(0.5, 0.4, 0.9),
        log(0.3, 0.5, 0.9),
        log(0.15, 0.9),
        log(0.05),
    ]
    assert found[0].normalized_score == pytest.approx(math.log(0.18) / 3, abs=1e-6)


def test_alternative_is_what_a_beam_finds_after_its_first_word() -> None:
    for word, found in zip((A, B, C), alternatives(3, length_penalty=0.0), strict=True):
        [forced] = Steps(FORK, beam_size=2, length_penalty=0.0, prefix=(word,)).finish()
        assert found.token_ids == forced.token_ids


def test_alternatives_of_a_beam_differ_after_the_prefix() -> None:
    table = after({(D, C): {A: 0.6, B: 0.4}, (D, C, A): {EOS: 0.9, A: 0.1}, (D, C, B): {D: 1.0}})
    options = {"table": table, "prefix": (D, C), "return_token_scores": True}
    first, second = alternatives(2, **options, return_top_tokens=2)
    assert (first.token_ids, second.token_ids) == ([D, C, A], [D, C, B, D])
    assert second.score == log(0.4)
    assert second.token_scores == pytest.approx(
        [math.nan, math.nan, math.log(0.4), 0.0, 0.0], nan_ok=True, abs=1e-6
    )
    assert [[word for word, _ in step] for step in first.top_tokens] == [
        [],
        [],
        [A, B],
        [EOS, A],
    ]


@pytest.mark.parametrize(("least", "count"), [(0.0, 4), (0.1, 3), (0.2, 2), (0.4, 1), (1.0, 1)])
def test_improbable_alternatives_of_a_beam_are_left_out(least: float, count: int) -> None:
    found = alternatives(4, min_alternative_expansion_prob=least)
    assert found == alternatives(4)[:count]


def test_alternatives_of_a_beam_that_are_left_out_are_free_at_once() -> None:
    rows = Rig()
    options = {"return_alternatives": True, "min_alternative_expansion_prob": 0.2}
    rows.join([5, 0, 1, 2, 4, 3], FORK, beam_size=2, num_hypotheses=3, **options)
    assert rows.step() == ([3, 4], [])
    assert sorted(rows.held) == [0, 1, 2, 5]
    while not (finished := rows.step().finished):
        pass
    assert words_of(finished[0][1].hypotheses) == [[A, B], [B, D]]


def test_alternatives_of_a_beam_are_the_best_words_after_what_is_penalised() -> None:
    table = after({(A,): {A: 0.6, B: 0.4}, (A, A): {EOS: 1.0}, (A, B): {EOS: 1.0}})
    found = alternatives(2, table=table, prefix=(A,), repetition_penalty=2.0)
    # .4 to .6²
    assert words_of(found) == [[A, B], [A, A]]
    assert found[0].score == log(0.4 / (0.6**2 + 0.4))


def test_last_word_there_can_be_may_be_that_of_an_alternative() -> None:
    found = alternatives(2, prefix=(A, A), max_decoding_length=3)
    assert words_of(found) == [[A, A], [A, A, A]]
    assert [one.stop_reason for one in found] == [StopReason.EOS, StopReason.LENGTH]


def test_alternative_is_found_where_its_own_best_ends() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {EOS: 0.6, C: 0.4}, (B,): {EOS: 0.6, C: 0.4}})
    options = {"beam_size": 2, "return_alternatives": True, "num_hypotheses": 2}
    steps = Steps(table, length_penalty=0.0, **options)
    assert words_of(steps.finish()) == [[A], [B]]
    assert steps.taken == 2


def test_beam_may_leave_a_prefix_that_it_prefers_and_is_scored_for_it() -> None:
    table = after(
        {(): {A: 0.9, B: 0.1}, (B,): {A: 0.9, C: 0.1}, (B, A): {A: 1.0}, (A,): {C: 0.5, D: 0.5}}
    )
    options = {"beam_size": 2, "prefix": (B, C), "num_hypotheses": 2, "return_token_scores": True}
    first, second = Steps(table, prefix_bias_beta=0.6, **options).finish()
    # .64 for B and then C; A has .36, and thereafter nothing is preferred.
    assert first.token_ids == [B, C]
    assert first.score == log(0.4 * 0.1 + 0.6, 0.4 * 0.1 + 0.6)
    assert second.token_ids == [B, A, A]
    assert second.token_scores == [log(0.64), log(0.4 * 0.9), log(1.0), log(1.0)]
    weak = Steps(table, prefix_bias_beta=0.01, **options).finish()
    assert words_of(weak) == [[A, C], [A, D]]


def test_prefix_that_is_preferred_completely_is_as_good_as_forced() -> None:
    options = {"beam_size": 2, "prefix": (B, C, D), "patience": 4.0}
    preferred = Steps(FORK, prefix_bias_beta=1 - 1e-9, **options).finish()
    assert words_of(preferred) == words_of(Steps(FORK, **options).finish()) == [[B, C, D]]


def with_terms(table: Table, *terms: tuple[int, ...], **options: Any) -> list[Hypothesis]:
    return Steps(table, terms=terms, **{"beam_size": 3} | options).finish()


def test_hypotheses_hold_their_terms_where_the_search_decides() -> None:
    table = after(
        {
            (): {A: 0.6, D: 0.3, B: 0.1},
            (A,): {B: 0.7, C: 0.2, EOS: 0.1},
            (A, C): {D: 0.6, EOS: 0.3, A: 0.1},
            (A, C, D): {EOS: 1.0},
            (A, B): {EOS: 0.9, A: 0.1},
        }
    )
    [free] = with_terms(table)
    assert free.token_ids == [A, B]
    [best] = with_terms(table, (C, D))
    assert (best.token_ids, best.unmet_terms) == ([A, C, D], [])
    assert best.score == log(0.6, 0.2, 0.6)


def test_terms_that_the_best_hypothesis_holds_cost_nothing() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {C: 0.7, D: 0.3}, (B,): {C: 1.0}})
    [free] = Steps(table, beam_size=3, patience=9.0).finish()
    [held] = with_terms(table, (C,), (A, C), patience=9.0)
    assert held.token_ids == free.token_ids == [A, C]
    assert (held.score, held.unmet_terms) == (pytest.approx(free.score), [])


def test_hypothesis_with_all_terms_ranks_before_a_better_one_without() -> None:
    """Which can only end where it has come to the longest length."""
    table = always({A: 0.9, B: 0.08, EOS: 0.02})
    options = {"max_decoding_length": 4, "num_hypotheses": 3}
    found = with_terms(table, (C, D), (B,), **options)
    unmet = [len(one.unmet_terms) for one in found]
    assert unmet == sorted(unmet)
    assert (unmet[0], found[0].unmet_terms) == (0, [])
    for one in found:
        lacking = [n for n, term in enumerate([(C, D), (B,)]) if not holds(one.token_ids, term)]
        assert one.unmet_terms == lacking
    [short] = with_terms(table, (C, D), (B,), max_decoding_length=2)
    assert (len(short.unmet_terms), len(short.token_ids)) == (1, 2)


def holds(words: list[int], term: tuple[int, ...]) -> bool:
    return any(tuple(words[place : place + len(term)]) == term for place in range(len(words)))


@pytest.mark.parametrize(("count", "taken"), [(1, 2), (2, 3)])
def test_of_many_banks_one_is_enough(count: int, taken: int) -> None:
    """Only what has said all terms ends."""
    table = after({(): {C: 0.9, A: 0.1}, (C,): {EOS: 0.6, A: 0.4}})
    steps = Steps(table, beam_size=2, terms=((C,),), num_hypotheses=count)
    assert words_of(steps.finish()) == [[C], [C, A]][:count]
    assert steps.taken == taken


def test_terms_may_be_in_the_prefix() -> None:
    table = after({(B, C): {A: 0.6, D: 0.4}, (B, C, A): {EOS: 1.0}})
    [found] = with_terms(table, (B, C), prefix=(B, C))
    assert (found.token_ids, found.unmet_terms) == ([B, C, A], [])


def test_each_row_has_top_tokens_of_its_own_with_terms_too() -> None:
    table = after({(): {A: 0.7, B: 0.3}, (A,): {C: 0.6, D: 0.4}, (B,): {D: 0.6, C: 0.4}})
    found = with_terms(table, (D,), num_hypotheses=3, return_top_tokens=2)
    assert words_of(found)[:2] == [[A, D], [B, D]]
    listed = [[[word for word, _ in step][:2] for step in one.top_tokens] for one in found]
    assert listed[0] == [[A, B], [C, D], [EOS, A]]
    assert listed[1] == [[A, B], [D, C], [EOS, A]]


@pytest.mark.parametrize("count", [1, 3])
def test_terms_that_cannot_be_said_are_told_of(count: int) -> None:
    """They are forbidden, and all of the best words would end what lacks them."""
    table = always({EOS: 0.4, A: 0.3, B: 0.2, C: 0.1})
    options = {"end_ids": (EOS, A, B, C), "no_repeat_ngram_size": 1, "num_hypotheses": count}
    found = with_terms(table, (D, D), **options)
    assert found
    assert [one.unmet_terms for one in found] == [[0]] * len(found)


@settings(deadline=None, max_examples=30)
@given(data=st.data(), seed=st.integers(0, 2**32), size=st.integers(2, 5))
def test_every_hypothesis_holds_its_terms_or_says_which_it_lacks(
    data: st.DataObject, seed: int, size: int
) -> None:
    words = st.lists(st.integers(1, WORDS - 1), min_size=1, max_size=3).map(tuple)
    terms = data.draw(st.lists(words, min_size=1, max_size=3, unique=True))
    found = with_terms(anything(seed), *terms, beam_size=size, num_hypotheses=size)
    for one in found:
        assert one.unmet_terms == [
            number for number, term in enumerate(terms) if not holds(one.token_ids, term)
        ]
        # No end is reached without them but that of the longest length.
        assert not one.unmet_terms or one.stop_reason is StopReason.LENGTH
    ranks = [(len(one.unmet_terms), -(one.normalized_score or 0.0)) for one in found]
    assert ranks == sorted(ranks)
    # What has said most of them always goes on, and there is room for all.
    assert found[0].unmet_terms == []
