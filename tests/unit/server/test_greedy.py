from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.greedy import GreedyRows
from seqserve_server.engine.request import DecodingOptions, StopReason

from .fake_runtime import EOS, MAX_TARGET, FakeRuntime, answer

Options = Callable[..., DecodingOptions]


class Rows:
    """A search whose words are given by hand instead of by a model."""

    def __init__(self, *options: DecodingOptions) -> None:
        self.cache = SlotCache(FakeRuntime(), len(options))
        self.search = GreedyRows(self.cache, EOS, MAX_TARGET)
        for row, option in enumerate(options):
            self.search.join(row, option)

    def take(self, *words: int, score: float = -1.0) -> list[int]:
        rows = len(words)
        self.cache.tokens[:rows, 0] = words
        self.cache.log_probabilities[:rows] = score
        self.cache.lengths[:rows] += 1
        return self.search.advance(rows)

    @property
    def held_back(self) -> list[bool]:
        return [EOS in self.cache._bans.get(row, []) for row in range(self.cache.slots)]


def limits(longest: int = MAX_TARGET, shortest: int = 0) -> DecodingOptions:
    return DecodingOptions(max_decoding_length=longest, min_decoding_length=shortest)


def test_end_token_ends_a_row_and_is_no_part_of_it() -> None:
    rows = Rows(limits(), limits())
    assert rows.take(5, 6) == []
    assert rows.take(EOS, 7, score=-0.5) == [0]
    assert rows.search.result(0) == answer([5], -1.5, StopReason.EOS)
    assert rows.take(9, 8) == []


def test_row_that_ends_at_once_is_empty() -> None:
    rows = Rows(limits())
    assert rows.take(EOS) == [0]
    assert rows.search.result(0) == answer([], -1.0, StopReason.EOS)


@pytest.mark.parametrize("longest", [1, 3, MAX_TARGET])
def test_row_ends_at_its_longest(longest: int) -> None:
    rows = Rows(limits(longest))
    for _ in range(longest - 1):
        assert rows.take(5) == []
    assert rows.take(6) == [0]
    expected = [5] * (longest - 1) + [6]
    assert rows.search.result(0) == answer(expected, -1.0 * longest, StopReason.LENGTH)


def test_end_token_in_the_last_place_counts_as_the_end() -> None:
    rows = Rows(limits(2))
    rows.take(5)
    assert rows.take(EOS) == [0]
    assert rows.search.result(0) == answer([5], -2.0, StopReason.EOS)


def test_each_row_has_limits_of_its_own() -> None:
    rows = Rows(limits(2), limits(1), limits(3))
    assert rows.take(5, 5, 5) == [1]
    assert rows.take(5, 5, 5) == [0, 1]


def test_end_token_is_held_back_until_the_shortest_length() -> None:
    rows = Rows(limits(), limits(shortest=2), limits(shortest=1))
    assert rows.held_back == [False, True, True]
    rows.take(5, 5, 5)
    assert rows.held_back == [False, True, False]
    rows.take(5, 5, 5)
    assert rows.held_back == [False, False, False]


def test_moved_row_takes_words_score_and_limits_along() -> None:
    rows = Rows(limits(1), limits(), limits(3))
    rows.take(5, 6, 7)
    rows.take(5, 6, 8)
    rows.cache.move(2, 0)
    rows.search.move(2, 0)
    assert rows.take(9, 6) == [0]
    assert rows.search.result(0) == answer([7, 8, 9], -3.0, StopReason.LENGTH)


def test_slot_is_used_again_without_a_trace() -> None:
    rows = Rows(limits(2, shortest=2))
    rows.take(5)
    rows.take(6)
    rows.cache.lengths[0] = 0
    rows.search.leave(0)
    rows.cache.unban(0)
    rows.search.join(0, limits())
    assert rows.held_back == [False]
    rows.take(9)
    assert rows.take(EOS) == [0]
    assert rows.search.result(0) == answer([9], -2.0, StopReason.EOS)


def test_scores_add_up_without_the_rounding_of_single_precision() -> None:
    rows = Rows(limits())
    small = np.float32(0.1)
    for _ in range(MAX_TARGET):
        rows.take(5, score=float(small))
    assert rows.search.result(0).best.score == pytest.approx(MAX_TARGET * float(small), rel=1e-15)


def unscored(longest: int = MAX_TARGET) -> DecodingOptions:
    return DecodingOptions(max_decoding_length=longest, return_scores=False)


def test_score_is_told_to_those_who_ask() -> None:
    rows = Rows(limits(), unscored())
    rows.take(5, 6)
    assert rows.take(EOS, EOS) == [0, 1]
    assert rows.search.result(0) == answer([5], -2.0, StopReason.EOS)
    assert rows.search.result(1) == answer([6], None, StopReason.EOS)


def test_slot_is_used_again_by_one_who_asks() -> None:
    rows = Rows(unscored(), unscored())
    rows.cache.scored[...] = False
    rows.take(5, 6, score=float("nan"))
    rows.cache.lengths[0] = 0
    rows.search.leave(0)
    rows.cache.unban(0)
    rows.search.join(0, limits())
    rows.cache.scored[...] = True
    assert rows.take(EOS, EOS, score=-0.5) == [0, 1]
    assert rows.search.result(0) == answer([], -0.5, StopReason.EOS)
    assert rows.search.result(1) == answer([6], None, StopReason.EOS)


@pytest.mark.parametrize(("first", "second"), [(limits, unscored), (unscored, limits)])
def test_moved_row_is_told_what_it_asked_for(first: Options, second: Options) -> None:
    rows = Rows(first(), second(2))
    rows.take(5, 6)
    rows.cache.move(1, 0)
    rows.search.move(1, 0)
    assert rows.take(7) == [0]
    score = -2.0 if second is limits else None
    assert rows.search.result(0) == answer([6, 7], score, StopReason.LENGTH)


def test_rows_of_other_searches_are_never_done() -> None:
    rows = Rows(limits(1), limits(1))
    rows.search.leave(0)
    assert rows.take(EOS, EOS) == [1]


def test_length_penalty_divides_the_score() -> None:
    rows = Rows(DecodingOptions(max_decoding_length=3, length_penalty=2.0))
    rows.take(5)
    rows.take(EOS)
    best = rows.search.result(0).best
    assert (best.score, best.normalized_score) == (-2.0, -0.5)


def test_rows_that_are_done_are_plain_numbers_in_rising_order() -> None:
    done = Rows(*[limits(1)] * 3).take(5, 6, 7)
    assert done == [0, 1, 2]
    assert {type(row) for row in done} == {int}
