from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve_server.engine.beam import ranked
from seqserve_server.engine.request import Hypothesis, StopReason

from .table import EOS, WORDS, Steps, Table, after, always, scores_after

A, B, C, D = 1, 2, 3, 4

# The best first word leads nowhere.
TRAP = after({(): {A: 0.6, B: 0.4}, (A,): {EOS: 0.4, C: 0.3, D: 0.3}, (B,): {EOS: 0.9, C: 0.1}})


def words_of(hypotheses: list[Hypothesis]) -> list[list[int]]:
    return [hypothesis.token_ids for hypothesis in hypotheses]


def log(*probabilities: float) -> Any:
    return pytest.approx(math.log(math.prod(probabilities)), abs=1e-6)


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


ENDLESS = always({EOS: 0.3, A: 0.4, B: 0.3})


@pytest.mark.parametrize("patience", [0.5, 1.0, 2.0, 3.0])
def test_search_goes_on_until_enough_hypotheses_are_finished(patience: float) -> None:
    steps = Steps(ENDLESS, beam_size=2, patience=patience, max_decoding_length=50)
    finished = 0
    while finished < 2 * patience:
        choice = steps.step()
        finished = len(steps.search._finished)
        assert bool(choice.finished) == (finished >= 2 * patience)


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
    assert not steps.step().finished, "the second best has ended, with .4"
    assert words_of(steps.finish()) == [[A, C]]


def test_place_of_a_beam_that_ends_is_taken_by_the_next_that_does_not() -> None:
    table = after({(): {EOS: 0.5, A: 0.3, B: 0.15, C: 0.05}})
    steps = Steps(table, beam_size=2)
    choice = steps.step()
    # The end token is first; the third best word comes in for it.
    assert (choice.parents, choice.words) == ([0, 0], [B, A])
    assert not choice.finished


def test_end_token_below_the_beam_does_not_end_a_hypothesis() -> None:
    table = after({(): {A: 0.5, B: 0.3, EOS: 0.15, C: 0.05}, (A,): {EOS: 1.0}, (B,): {EOS: 1.0}})
    found = Steps(table, beam_size=2, num_hypotheses=2).finish()
    assert words_of(found) == [[A], [B]]


def test_rows_go_on_from_the_beam_they_come_from() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {C: 0.1, D: 0.1, A: 0.8}, (B,): {C: 0.9, D: 0.1}})
    steps = Steps(table, beam_size=2)
    assert steps.step() == ([0, 0], [A, B], [])
    assert steps.step() == ([0, 1], [A, C], [])
    assert steps.rows == [(A, A), (B, C)]


def test_one_beam_may_take_all_places() -> None:
    table = after({(): {A: 0.9, B: 0.1}, (A,): {C: 0.6, D: 0.4}, (B,): {EOS: 1.0}})
    steps = Steps(table, beam_size=2)
    steps.step()
    assert steps.step() == ([0, 0], [C, D], [])


def test_among_equals_the_first_beam_and_the_first_word_come_first() -> None:
    steps = Steps(always({A: 0.25, B: 0.25, C: 0.25, D: 0.25}), beam_size=2)
    assert steps.step() == ([0, 0], [A, B], [])
    assert steps.step() == ([0, 0], [A, B], [])


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
    assert steps.step() == ([0, 1], [C, C], [])
    assert steps.step() == ([0, 1], [D, D], [])
    # From one of them only: the others are the same.
    assert steps.step() == ([0, 0], [A, B], [])
    first, second = steps.finish()
    assert (first.token_ids, second.token_ids) == ([C, D, A], [C, D, B])
    assert first.score == log(0.6)
    assert first.normalized_score == pytest.approx((first.score or 0) / 4)
    assert first.token_scores == pytest.approx(
        [math.nan, math.nan, math.log(0.6), 0.0], nan_ok=True, abs=1e-6
    )


def test_words_that_were_said_are_penalised_in_their_own_beam_only() -> None:
    table = after({(): {A: 0.5, B: 0.5}, (A,): {A: 0.6, B: 0.4}, (B,): {A: 0.6, B: 0.4}})
    steps = Steps(table, beam_size=2, repetition_penalty=2.0)
    assert steps.search.shows_scores
    steps.step()
    steps.step()
    # After A: .6² to .4; after B: .6 to .4²; B A is then the likeliest.
    assert steps.rows == [(B, A), (A, B)]
    assert steps.search.scores[0] == log(0.5, 0.6 / (0.6 + 0.4**2))


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
    assert Steps(TRAP, beam_size=3).search.ranked == 6
    assert Steps(TRAP, beam_size=3, return_top_tokens=7).search.ranked == 7
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


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), groups=st.integers(1, 4), size=st.integers(2, 4))
def test_requests_ranked_together_are_ranked_as_alone(seed: int, groups: int, size: int) -> None:
    random = np.random.default_rng(seed)
    # Few values, so that many are equal.
    scores = -random.integers(0, 3, (groups, size)).astype(float)
    words = random.integers(0, 50, (groups, size, 2 * size))
    found = -random.integers(0, 3, words.shape).astype(float)
    together = ranked(scores.tolist(), words, found)
    for group in range(groups):
        every = [
            (scores[group, beam] + found[group, beam, place], beam, place)
            for beam in range(size)
            for place in range(2 * size)
        ]
        best = sorted(every, key=lambda entry: -entry[0])[: 2 * size]
        assert together[group] == [
            (beam, words[group, beam, place], found[group, beam, place]) for _, beam, place in best
        ]
