from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine import fake_runtime
from tests.unit.server.engine.decoding.table import (
    EOS,
    LEAST,
    WORDS,
    Rig,
    Steps,
    after,
    always,
    anything,
    log,
)
from tests.unit.server.engine.fake_runtime import MAX_TARGET, FakeRuntime, answer, make_manifest
from tests.unit.server.engine.requests import generation

from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.search import Search
from seqserve_server.engine.request import Request

A, B, C, D, E, F = 1, 2, 3, 4, 5, 6
END = fake_runtime.EOS

COIN = always({EOS: 0.2, A: 0.5, B: 0.3})

Options = Callable[..., DecodingOptions]


class Dictation:
    """Rig whose best words are given by hand instead of by a model."""

    def __init__(self, *options: DecodingOptions) -> None:
        self.cache = SlotCache(FakeRuntime(), len(options))
        self.search = Search(self.cache, make_manifest(), str)
        for row, option in enumerate(options):
            self.join(row, option)

    def join(self, row: int, options: DecodingOptions) -> None:
        self.cache.lengths[row] = 0
        self.search.join([row], generation([row], options))

    def leave(self, row: int) -> None:
        self.search.leave(row)

    def move(self, source: int, target: int) -> None:
        self.leave(target)
        self.cache.move(source, target)
        self.search.move(source, target)

    def take(self, *words: int, score: float = -1.0) -> dict[int, Finished]:
        """Lets leading rows say a word each; gives the answers of those that are done."""
        rows = len(words)
        self.cache.tokens[:rows, 0] = words
        self.cache.log_probabilities[:rows] = score
        self.cache.lengths[:rows] += 1
        done = self.search.advance(rows)
        return dict(zip(done.rows, (found for _, found in done.finished), strict=True))


def limits(longest: int = MAX_TARGET) -> DecodingOptions:
    return DecodingOptions(max_decoding_length=longest)


def test_end_token_ends_a_row_and_is_no_part_of_it() -> None:
    rows = Dictation(limits(), limits())
    assert rows.take(5, 6) == {}
    assert rows.take(END, 7, score=-0.5) == {0: answer([5], -1.5, StopReason.EOS)}


def test_row_that_ends_at_once_is_empty() -> None:
    assert Dictation(limits()).take(END) == {0: answer([], -1.0, StopReason.EOS)}


@pytest.mark.parametrize("longest", [1, 3, MAX_TARGET])
def test_row_ends_at_its_longest(longest: int) -> None:
    rows = Dictation(limits(longest))
    for _ in range(longest - 1):
        assert rows.take(5) == {}
    expected = [5] * (longest - 1) + [6]
    assert rows.take(6) == {0: answer(expected, -1.0 * longest, StopReason.LENGTH)}


def test_end_token_in_the_last_place_counts_as_the_end() -> None:
    rows = Dictation(limits(2))
    rows.take(5)
    assert rows.take(END) == {0: answer([5], -2.0, StopReason.EOS)}


def test_each_row_has_limits_of_its_own() -> None:
    rows = Dictation(limits(2), limits(1), limits(3))
    assert list(rows.take(5, 5, 5)) == [1]
    rows.move(2, 1)
    assert list(rows.take(5, 5)) == [0]


def test_end_token_is_held_back_until_the_shortest_length_of_each() -> None:
    rows, table = Rig(), always({EOS: 0.8, A: 0.2})
    for row, shortest in enumerate((0, 2, 1)):
        rows.join([row], table, min_decoding_length=shortest)
    for ended in ([0], [2], [1]):
        done = rows.step()
        assert done.rows == ended
        [(_, found)] = done.finished
        assert found.best.token_ids == [A] * found.best.token_ids.count(A)
    assert found.best.token_ids == [A, A]


def test_moved_row_takes_words_score_and_limits_along() -> None:
    rows = Dictation(limits(), limits(), limits(3))
    rows.take(5, 6, 7)
    rows.take(5, 6, 8)
    rows.move(2, 0)
    assert rows.take(9, 6) == {0: answer([7, 8, 9], -3.0, StopReason.LENGTH)}


def test_slot_is_used_again_without_a_trace() -> None:
    rows = Dictation(limits(2))
    rows.take(5)
    rows.take(6)
    rows.leave(0)
    rows.join(0, limits())
    rows.take(9)
    assert rows.take(END) == {0: answer([9], -2.0, StopReason.EOS)}


def test_scores_add_up_without_the_rounding_of_single_precision() -> None:
    rows = Dictation(limits())
    small = float(np.float32(0.1))
    for _ in range(MAX_TARGET):
        found = rows.take(5, score=small)
    assert found[0].best.score == pytest.approx(MAX_TARGET * small, rel=1e-15)


def unscored(longest: int = MAX_TARGET) -> DecodingOptions:
    return DecodingOptions(max_decoding_length=longest, return_scores=False)


def test_score_is_told_to_those_who_ask() -> None:
    rows = Dictation(limits(), unscored())
    rows.take(5, 6)
    assert rows.take(END, END) == {
        0: answer([5], -2.0, StopReason.EOS),
        1: answer([6], None, StopReason.EOS),
    }


def test_slot_is_used_again_by_one_who_asks() -> None:
    rows = Dictation(unscored(), unscored())
    rows.take(5, 6, score=float("nan"))
    rows.leave(0)
    rows.join(0, limits())
    assert rows.take(END, END, score=-0.5) == {
        0: answer([], -0.5, StopReason.EOS),
        1: answer([6], None, StopReason.EOS),
    }


@pytest.mark.parametrize(("first", "second"), [(limits, unscored), (unscored, limits)])
def test_moved_row_is_told_what_it_asked_for(first: Options, second: Options) -> None:
    rows = Dictation(first(), second(2))
    rows.take(5, 6)
    rows.move(1, 0)
    score = -2.0 if second is limits else None
    assert rows.take(7) == {0: answer([6, 7], score, StopReason.LENGTH)}


def test_rows_of_nobody_are_never_done() -> None:
    rows = Dictation(limits(1), limits(1))
    rows.leave(0)
    assert list(rows.take(END, END)) == [1]


def test_length_penalty_divides_the_score() -> None:
    rows = Dictation(DecodingOptions(max_decoding_length=3, length_penalty=2.0))
    rows.take(5)
    best = rows.take(END)[0].best
    assert (best.score, best.normalized_score) == (-2.0, -0.5)


def test_rows_that_are_done_are_plain_numbers_in_rising_order() -> None:
    done = list(Dictation(*[limits(1)] * 3).take(5, 6, 7))
    assert done == [0, 1, 2]
    assert {type(row) for row in done} == {int}


def drawing(
    seed: int = 7,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Sampling:
    return Sampling(temperature, top_k, top_p, min_p, seed)


def samples(count: int, seed: int = 7, **options: Any) -> list[Hypothesis]:
    return Steps(COIN, sampling=drawing(seed), num_hypotheses=count, **options).finish()


def test_best_word_is_said() -> None:
    [found] = Steps(after({(): {A: 0.6, B: 0.4}, (A,): {C: 0.7, EOS: 0.3}})).finish()
    assert found.token_ids == [A, C]
    assert found.score == log(0.6, 0.7)
    assert found.normalized_score == pytest.approx((found.score or 0) / 3)
    assert found.stop_reason is StopReason.EOS


@pytest.mark.parametrize("top_k", [0, 5])
def test_row_that_has_ended_leaves_and_the_others_go_on(top_k: int) -> None:
    """The answer comes with the last of them, and holds those that ended before."""
    sampling = drawing(top_k=top_k)
    steps = Steps(COIN, sampling=sampling, num_hypotheses=4, max_decoding_length=99)
    held = [4]
    while not (found := steps.step()):
        held.append(len(steps.rows.held))
    assert held == sorted(held, reverse=True)
    assert len(set(held)) > 1, "they end together"
    assert len(found) == 4
    assert max(len(one.token_ids) for one in found) + 1 == steps.taken


def test_samples_come_best_first() -> None:
    ranks = [one.normalized_score for one in samples(8)]
    assert len(set(ranks)) > 3
    assert ranks == sorted(ranks, reverse=True)


def test_equal_seeds_give_equal_samples() -> None:
    assert samples(4) == samples(4)
    assert samples(4) != samples(4, seed=8)


def test_sample_has_random_numbers_of_its_own() -> None:
    """How many others are drawn beside it, and how soon they end, changes nothing."""
    few, many = samples(2, max_decoding_length=30), samples(9, max_decoding_length=30)
    assert all(sample in many for sample in few)


@pytest.mark.parametrize("top_k", [0, 8])
def test_word_is_the_one_on_which_the_next_number_falls(top_k: int) -> None:
    """They lie best first, whether the graph has listed the best or all are looked at."""
    random = np.random.default_rng([7, 0])
    table = always({A: 0.5, B: 0.3, EOS: 0.2})
    [found] = Steps(table, sampling=drawing(top_k=top_k), max_decoding_length=30).finish()
    words = []
    while True:
        number = random.random()
        if top_k == 0:
            # As in the vocabulary, but for the best.
            word = A if number < 0.5 else EOS if number < 0.7 else B
        else:
            word = A if number < 0.5 else B if number < 0.8 else EOS
        if word == EOS:
            break
        words.append(word)
    assert found.token_ids == words


@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("prefix", [(), (C,), (C, D, C)])
def test_prefix_takes_no_random_number(prefix: tuple[int, ...], top_k: int) -> None:
    options: dict[str, Any] = {"sampling": drawing(top_k=top_k)}
    [free] = Steps(COIN, max_decoding_length=9, **options).finish()
    longest = 9 + len(prefix)
    [forced] = Steps(COIN, max_decoding_length=longest, prefix=prefix, **options).finish()
    assert forced.token_ids == [*prefix, *free.token_ids]
    assert forced.score == free.score


def test_there_is_a_random_number_for_the_last_word_there_can_be() -> None:
    longest = 300
    [found] = Steps(
        COIN, sampling=drawing(), max_decoding_length=longest, min_decoding_length=longest
    ).finish()
    assert len(found.token_ids) == longest
    random = np.random.default_rng([7, 0])
    numbers = [random.random() for _ in range(longest)]
    assert found.token_ids == [A if number < 0.5 / 0.8 else B for number in numbers]


def test_prefix_has_no_scores() -> None:
    table = after({(C, D): {A: 0.6, B: 0.4}})
    options = {"prefix": (C, D), "return_token_scores": True, "return_top_tokens": 2}
    for more in ({}, {"repetition_penalty": 1.5}):
        [found] = Steps(table, **options, **more).finish()
        assert found.token_ids == [C, D, A]
        assert found.token_scores == pytest.approx(
            [math.nan, math.nan, math.log(0.6), 0], nan_ok=True, abs=1e-6
        )
        assert found.score == log(0.6)
        assert [[word for word, _ in step] for step in found.top_tokens[:3]] == [[], [], [A, B]]
        assert len(found.top_tokens) == 4


def test_word_of_the_prefix_is_the_newest_one() -> None:
    """What is streamed is not what the graph would have said."""
    rows = Rig()
    rows.join([0], always({A: 1.0}), prefix=(C, D))
    for word in (C, D, A):
        rows.step()
        assert rows.search.last_token(0) == word


def test_temperature_changes_what_is_drawn_and_not_the_scores() -> None:
    table = always({EOS: 0.1, A: 0.6, B: 0.3})
    for temperature in (0.01, 1.0, 50.0):
        options = {"sampling": drawing(temperature=temperature), "return_token_scores": True}
        [found] = Steps(table, max_decoding_length=6, **options).finish()
        known = {EOS: 0.1, A: 0.6, B: 0.3}
        ended = [EOS] if found.stop_reason is StopReason.EOS else []
        for word, score in zip([*found.token_ids, *ended], found.token_scores, strict=True):
            assert score == log(known.get(word, LEAST))
    [cold] = Steps(table, sampling=drawing(temperature=0.01), max_decoding_length=6).finish()
    assert cold.token_ids == [A] * 6


def test_top_k_of_one_is_greedy_search() -> None:
    table = after({(): {A: 0.4, B: 0.35, C: 0.25}, (A,): {D: 0.6, EOS: 0.4}})
    [drawn] = Steps(table, sampling=drawing(top_k=1)).finish()
    [best] = Steps(table).finish()
    assert drawn.token_ids == best.token_ids == [A, D]
    assert drawn.score == pytest.approx(best.score)


def test_few_best_words_are_drawn_alike_from_the_few_and_from_all() -> None:
    table = always({EOS: 0.05, A: 0.4, B: 0.3, C: 0.15, D: 0.1})
    sampling = drawing(top_k=3)
    few = Steps(table, sampling=sampling, num_hypotheses=6)
    # A penalty that does nothing, but asks for all.
    every = Steps(table, sampling=sampling, num_hypotheses=6, repetition_penalty=1 + 1e-12)
    shown = (few.rows.cache.num_logits > 0, every.rows.cache.num_logits > 0)
    assert shown == (False, True)
    for one, other in zip(few.finish(), every.finish(), strict=True):
        assert one.token_ids == other.token_ids
        assert one.score == pytest.approx(other.score)
        assert set(one.token_ids) <= {A, B, C}


def test_words_that_were_said_are_penalised() -> None:
    table = after({(): {A: 0.6, B: 0.4}, (A,): {A: 0.6, B: 0.4}, (A, B): {A: 0.9, B: 0.1}})
    [found] = Steps(table, repetition_penalty=2.0, return_token_scores=True).finish()
    # .6² to .4, then .9² to .1²
    assert found.token_ids == [A, B, A]
    assert found.token_scores[1] == log(0.4 / (0.6**2 + 0.4))
    assert found.token_scores[2] == log(0.9**2 / (0.9**2 + 0.1**2))


# Nothing but A and B may be said, each once.
FEW: dict[str, Any] = {
    "suppressed": tuple((word,) for word in (C, D, E, F, WORDS - 1)),
    "no_repeat_ngram_size": 1,
    "return_token_scores": True,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 0.1},
        {"end_ids": (D,), "suppressed": (*FEW["suppressed"], (EOS,))},
        {"sampling": drawing(temperature=50.0)},
        {"sampling": drawing(temperature=50.0, top_k=6)},
        {"sampling": drawing(top_p=0.9), "num_hypotheses": 3},
        {"return_alternatives": True, "num_hypotheses": 2, "return_top_tokens": 3},
    ],
    ids=str,
)
def test_row_ends_where_nothing_is_left_to_say(options: dict[str, Any]) -> None:
    """Short as it is, and with no word that is forbidden."""
    found = Steps(COIN, min_decoding_length=9, **FEW | options).finish()
    for one in found:
        assert sorted(one.token_ids) == [A, B]
        assert one.stop_reason is StopReason.EOS
        # What is left alone is certain.
        assert one.token_scores == [one.score, pytest.approx(0.0), pytest.approx(0.0)]
        assert all(word in (EOS, A, B) for step in one.top_tokens for word, _ in step)


@pytest.mark.parametrize("top_k", [0, 6])
def test_what_is_forbidden_is_not_drawn(top_k: int) -> None:
    sampling = drawing(temperature=100.0, top_k=top_k)
    options: dict[str, Any] = {"sampling": sampling, "max_decoding_length": 200}
    [found] = Steps(COIN, min_decoding_length=200, suppressed=((A,), (B, C)), **options).finish()
    assert len(found.token_ids) == 200
    assert EOS not in found.token_ids
    assert A not in found.token_ids
    pairs = set(zip(found.token_ids, found.token_ids[1:], strict=False))
    assert (B, C) not in pairs
    assert len(pairs) == (WORDS - 2) ** 2 - 1


def test_each_sample_ends_in_its_own_way() -> None:
    options = {"end_ids": (B,), "stops": ("aa",), "max_decoding_length": 3}
    found = samples(60, **options)
    reasons = {one.stop_reason for one in found}
    assert reasons == set(StopReason) - {StopReason.TIME_LIMIT}
    for one in found:
        if one.stop_reason is StopReason.STOP_SEQUENCE:
            assert [A, A] not in (one.token_ids[i : i + 2] for i in range(2))
            assert one.text_length is not None
        else:
            assert one.text_length is None
            assert B not in one.token_ids


def test_models_own_end_token_is_a_word_among_others_where_there_are_others() -> None:
    table = after({(): {EOS: 0.9, A: 0.1}, (EOS,): {A: 1.0}, (EOS, A): {B: 1.0}})
    [found] = Steps(table, end_ids=(B,)).finish()
    assert (found.token_ids, found.stop_reason) == ([EOS, A], StopReason.EOS)


@pytest.mark.parametrize("top_k", [0, 5])
def test_top_tokens_are_those_of_the_step_even_where_another_is_drawn(top_k: int) -> None:
    options: dict[str, Any] = {"return_top_tokens": 2, "min_decoding_length": 9}
    sampling = drawing(top_k=top_k)
    [found] = Steps(COIN, sampling=sampling, return_token_scores=True, **options).finish()
    assert set(found.token_ids) == {A, B}
    for step in found.top_tokens:
        assert [word for word, _ in step] == [A, B]
        assert [score for _, score in step] == [log(0.5 / 0.8), log(0.3 / 0.8)]
    assert len(found.top_tokens) == len(found.token_scores)


def test_scores_that_are_not_asked_for_are_not_told() -> None:
    for sample in samples(3, return_scores=False):
        assert (sample.score, sample.normalized_score) == (None, None)
        assert (sample.token_scores, sample.top_tokens) == ((), ())


# Less probable than the first two, the third ends best.
FORK = after(
    {
        (): {A: 0.5, B: 0.3, C: 0.15, EOS: 0.05},
        (A,): {D: 0.6, EOS: 0.4},
        (B,): {EOS: 0.5, D: 0.3, A: 0.2},
        (C,): {EOS: 0.9, D: 0.1},
    }
)


def alternatives(count: int, **options: Any) -> list[Hypothesis]:
    options = {"num_hypotheses": count, "return_alternatives": True} | options
    return Steps(options.pop("table", FORK), **options).finish()


def test_alternatives_are_greedy_searches_after_the_best_first_words() -> None:
    found = alternatives(4)
    assert [one.token_ids for one in found] == [[A, D], [B], [C], []]
    assert [one.score for one in found] == [
        log(0.5, 0.6),
        log(0.3, 0.5),
        log(0.15, 0.9),
        log(0.05),
    ]
    assert found[1].normalized_score == pytest.approx(math.log(0.15) / 2, abs=1e-6)
    # In their order, though the first is not the best.
    assert alternatives(2, length_penalty=0.0) == [
        one._replace(normalized_score=one.score) for one in found[:2]
    ]


def test_alternatives_differ_after_the_prefix() -> None:
    table = after({(D,): {A: 0.6, B: 0.4}, (D, B): {C: 1.0}})
    found = alternatives(2, table=table, prefix=(D,), return_token_scores=True)
    assert [one.token_ids for one in found] == [[D, A], [D, B, C]]
    assert found[1].token_scores == pytest.approx(
        [math.nan, math.log(0.4), 0.0, 0.0], nan_ok=True, abs=1e-6
    )


@pytest.mark.parametrize(("least", "count"), [(0.0, 4), (0.051, 3), (0.29, 2), (0.31, 1), (1.0, 1)])
def test_improbable_alternatives_are_left_out_but_the_best_never_is(
    least: float, count: int
) -> None:
    found = alternatives(4, min_alternative_expansion_prob=least)
    assert found == alternatives(4)[:count]


def test_alternatives_that_are_left_out_are_free_at_once() -> None:
    rows = Rig()
    options = {"return_alternatives": True, "min_alternative_expansion_prob": 0.2}
    rows.join([3, 0, 1], FORK, num_hypotheses=3, **options)
    assert rows.step() == ([1], [])
    assert set(rows.held) == {0, 3}


def test_alternatives_have_top_tokens_of_each_step_and_scores() -> None:
    first, second = alternatives(2, return_top_tokens=2)
    assert [[word for word, _ in step] for step in first.top_tokens] == [
        [A, B],
        [D, EOS],
        [EOS, A],
    ]
    assert [[word for word, _ in step] for step in second.top_tokens] == [[A, B], [EOS, D]]
    assert second.top_tokens[1][0][1] == log(0.5)


def test_alternatives_are_the_best_words_after_what_is_penalised() -> None:
    table = after({(A,): {A: 0.6, B: 0.4}, (A, B): {A: 0.5, B: 0.3, C: 0.2}})
    found = alternatives(2, table=table, prefix=(A,), repetition_penalty=2.0)
    # .4 to .6², then .2 to .5² and .3²
    assert [one.token_ids for one in found] == [[A, B, A], [A, A]]
    assert found[1].score == log(0.6**2 / (0.6**2 + 0.4))


def test_row_that_prefers_a_prefix_may_leave_it() -> None:
    table = after({(): {A: 0.7, B: 0.3}, (B,): {A: 0.9, C: 0.1}, (B, A): {C: 0.6, D: 0.4}})
    [found] = Steps(table, prefix=(B, C), prefix_bias_beta=0.4, return_token_scores=True).finish()
    assert found.token_ids == [B, A, C]
    assert found.token_scores[:3] == [log(0.6 * 0.3 + 0.4), log(0.6 * 0.9), log(0.6)]


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with token scores": {"return_token_scores": True},
    "with top tokens": {"return_top_tokens": 3},
    "long": {"min_decoding_length": 6},
    "after a prefix": {"prefix": (C, D, C)},
    "of other ends": {"end_ids": (A,), "stops": ("bbc",)},
    "penalised": {"repetition_penalty": 3.0},
    "drawn among all": {"sampling": drawing(temperature=2.0)},
    "drawn among few": {"sampling": drawing(top_k=2)},
    "drawn after a preferred prefix": {
        "sampling": drawing(temperature=2.0),
        "prefix": (C, D, C),
        "prefix_bias_beta": 0.3,
    },
    "cold": {"sampling": drawing(temperature=0.4, top_k=7)},
    "of most of the probability": {"sampling": drawing(top_p=0.5, top_k=7, temperature=2.0)},
    "of the more probable": {"sampling": drawing(min_p=0.5, top_k=7, temperature=2.0)},
    "drawn from far down": {"sampling": drawing(temperature=9.0, top_k=7)},
}


def alone(options: dict[str, Any], seed: int) -> list[Hypothesis]:
    return Steps(anything(seed), **options).finish()


def answer_of(request: Request, rows: Rig, turn: Callable[[], None] = lambda: None) -> str:
    """Steps until it has come; in between, others may take their turn."""
    while True:
        for owner, finished in rows.step().finished:
            if owner is request:
                return repr(finished.hypotheses)
        turn()


@pytest.mark.parametrize("name", KINDS)
def test_row_that_is_moved_goes_on_as_it_would_have(name: str) -> None:
    """At each step it takes the place of another, and another joins where it was."""
    other: dict[str, Any] = {"sampling": drawing(1, top_k=3), "prefix": (A, A)}
    for seed in range(8):
        rows = Rig(slots=2)
        rows.join([0], always({F: 1.0}), **other)
        request = rows.join([1], anything(seed), **KINDS[name])

        def swap(rows: Rig = rows, request: Request = request) -> None:
            [source] = [row for row, owner in rows.held.items() if owner is request]
            rows.leave(1 - source)
            rows.move(source, 1 - source)
            rows.join([source], always({F: 1.0}), **other)

        assert answer_of(request, rows, swap) == repr(alone(KINDS[name], seed))


@pytest.mark.parametrize("before", KINDS)
def test_slot_is_used_again_by_another_kind_without_a_trace(before: str) -> None:
    for number, options in enumerate(KINDS.values()):
        rows = Rig(slots=2)
        rows.join([0], always({F: 1.0}), **KINDS[before] | {"end_ids": (E,), "stops": ()})
        rows.join([1], always({F: 1.0}), max_decoding_length=100)
        rows.step()
        rows.leave(0)
        request = rows.join([0], anything(number), **options)
        assert answer_of(request, rows) == repr(alone(options, number))


def test_beam_takes_the_rows_of_others_without_a_trace() -> None:
    rows = Rig()
    for row, kind in enumerate(({}, {"sampling": drawing(top_k=2)}, {"prefix": (A, B)})):
        rows.join([row], always({F: 1.0}), **kind)
    rows.join([3], always({F: 1.0}), max_decoding_length=100)
    rows.step()
    rows.leave(0, 1, 2)
    beam = rows.join([0, 1, 2], anything(5), beam_size=3)
    assert answer_of(beam, rows) == repr(alone({"beam_size": 3}, 5))


def test_end_token_is_held_back_until_the_shortest_length_and_no_longer() -> None:
    rows = Rig(slots=3)
    for place, shortest in enumerate((2, 4, 0)):
        rows.join([place], always({EOS: 0.9, A: 0.1}), min_decoding_length=shortest)
    lengths: dict[int, int] = {}
    while rows.held:
        for request, found in rows.step().finished:
            lengths[request.options.min_decoding_length] = len(found.best.token_ids)
        rows.compact()
    assert lengths == {0: 0, 2: 2, 4: 4}
