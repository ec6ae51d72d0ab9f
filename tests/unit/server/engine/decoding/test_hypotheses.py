from __future__ import annotations

import math
from typing import Any

import pytest
from tests.unit.server.engine.decoding.table import EOS, WORDS, made, spelt
from tests.unit.server.engine.requests import generation

from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.engine.decoding.constraints import Constraints, End
from seqserve_server.engine.decoding.hypotheses import (
    FinishedHypothesis,
    HypothesisPool,
    PartialHypothesis,
    best,
    rank_of,
)

EVERYTHING: dict[str, Any] = {"return_token_scores": True, "return_top_tokens": 2}
RANKING = [(5, -0.5), (6, -1.0)]


def said(*words: int, prefix: tuple[int, ...] = ()) -> PartialHypothesis:
    """Says a prefix, then words of which the log-probability is -word."""
    found = [*[math.nan] * len(prefix), *(-float(word) for word in words)]
    rankings = [*[[]] * len(prefix), *([(word, -float(word))] for word in words)]
    return PartialHypothesis([*prefix, *words], found, -float(sum(words)), rankings)


def whole(said: PartialHypothesis) -> Hypothesis:
    """Tells everything of what has come to its longest length."""
    return said.hypothesis(End(StopReason.LENGTH, len(said.token_ids)), made(**EVERYTHING))


def test_one_word_more_makes_another_of_it() -> None:
    """Two beams may go on from the same one."""
    before = said(1)
    one, other = before.extended(2, -0.5, -1.5, RANKING), before.extended(3, math.nan, -1.0, [])
    assert before == ([1], [-1.0], -1.0, [[(1, -1.0)]])
    assert one == ([1, 2], [-1.0, -0.5], -1.5, [[(1, -1.0)], RANKING])
    assert other.token_ids == [1, 3]
    assert (other.score, other.top_tokens) == (-1.0, [[(1, -1.0)], []])


def test_prefix_has_words_but_no_scores() -> None:
    found = whole(said(3, prefix=(7, 8)))
    assert (found.token_ids, found.score) == ([7, 8, 3], -3.0)
    assert found.token_scores == pytest.approx([math.nan, math.nan, -3.0], nan_ok=True)
    assert found.top_tokens == [[], [], [(3, -3.0)]]


def test_end_token_is_no_word_of_the_answer_but_its_score_is_told() -> None:
    found = said(4, 5, 2).hypothesis(End(StopReason.EOS, 2), made(**EVERYTHING))
    assert found.token_ids == [4, 5]
    assert found.score == -11.0
    assert found.normalized_score == pytest.approx(-11 / 3)
    assert found.token_scores == [-4.0, -5.0, -2.0]
    assert found.top_tokens == [[(4, -4.0)], [(5, -5.0)], [(2, -2.0)]]
    assert (found.stop_reason, found.text_length) == (StopReason.EOS, None)


def test_longest_length_keeps_every_word() -> None:
    found = whole(said(4, 5))
    assert (found.token_ids, found.token_scores) == ([4, 5], [-4.0, -5.0])
    assert found.normalized_score == pytest.approx(-9 / 2)


def test_what_comes_after_a_text_is_not_told_of() -> None:
    end = End(StopReason.STOP_SEQUENCE, 1, 7)
    found = said(4, 5, 6).hypothesis(end, made(**EVERYTHING))
    assert found.token_ids == [4]
    assert (found.token_scores, found.top_tokens) == ([-4.0], [[(4, -4.0)]])
    assert found.text_length == 7
    # What was cut off was said all the same.
    assert (found.score, found.normalized_score) == (-15.0, -5.0)


def test_text_may_begin_within_the_prefix() -> None:
    end = End(StopReason.STOP_SEQUENCE, 1, 2)
    found = said(4, 5, prefix=(7, 8)).hypothesis(end, made(**EVERYTHING))
    assert found.token_ids == [7]
    assert found.token_scores == pytest.approx([math.nan], nan_ok=True)
    assert found.top_tokens == [[]]


def test_prefix_has_its_places_among_what_is_told() -> None:
    ended = End(StopReason.EOS, 3)
    found = said(4, 2, prefix=(7, 8)).hypothesis(ended, made(**EVERYTHING))
    assert found.token_ids == [7, 8, 4]
    assert found.token_scores == pytest.approx([math.nan, math.nan, -4, -2], nan_ok=True)
    assert found.top_tokens == [[], [], [(4, -4.0)], [(2, -2.0)]]
    assert found.normalized_score == pytest.approx(-6 / 4)


def test_only_what_is_asked_for_is_told() -> None:
    end = End(StopReason.EOS, 1)
    plain = said(4, 2).hypothesis(end, made())
    assert plain == Hypothesis([4], -6.0, StopReason.EOS, -3.0)
    silent = said(4, 2).hypothesis(end, made(return_scores=False, return_token_scores=True))
    assert (silent.score, silent.normalized_score) == (None, None)
    assert silent.token_scores == [-4.0, -2.0]


def test_score_is_told_also_where_coverage_is_yet_to_be_added() -> None:
    options = made(return_scores=False, coverage_penalty=0.5)
    found = said(4, 2).hypothesis(End(StopReason.EOS, 1), options)
    assert (found.score, found.normalized_score) == (-6.0, -3.0)


def test_terms_count_only_in_what_is_kept() -> None:
    options = made(terms=((4, 5), (7, 4), (5,), (6,)))
    text = said(4, 5, 6, prefix=(7,))
    assert text.hypothesis(End(StopReason.LENGTH, 4), options).unmet_terms == []
    assert text.hypothesis(End(StopReason.EOS, 3), options).unmet_terms == [3]
    assert text.hypothesis(End(StopReason.STOP_SEQUENCE, 2, 1), options).unmet_terms == [0, 2, 3]


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize(("penalty", "rank"), [(0.0, -6.0), (1.0, -2.0), (2.0, -6 / 9)])
def test_rank_is_the_score_by_the_length(penalty: float, rank: float, scored: bool) -> None:
    options = made(length_penalty=penalty, return_scores=scored)
    for text in (said(3, 1, 2), said(4, 2, prefix=(9,))):
        # Words that are cut off count too.
        ended = FinishedHypothesis.of(text, End(StopReason.STOP_SEQUENCE, 1, 1), options)
        assert ended.rank == (False, 0, pytest.approx(-rank))
        assert ended.hypothesis.token_ids == text.token_ids[:1]


def ended(
    number: int,
    rank: float,
    unmet: tuple[int, ...] = (),
    reason: StopReason = StopReason.EOS,
) -> FinishedHypothesis:
    hypothesis = Hypothesis([number], None, reason, unmet_terms=unmet)
    return FinishedHypothesis(hypothesis, rank_of(hypothesis, rank))


def numbers(found: list[FinishedHypothesis]) -> list[int]:
    return [entry.hypothesis.token_ids[0] for entry in found]


def test_best_come_first_and_among_equals_the_one_that_ended_first() -> None:
    some = [ended(1, -2.0), ended(2, -1.0), ended(3, -2.0), ended(4, -1.0), ended(5, -0.5)]
    assert numbers(best(some, 9)) == [5, 2, 4, 1, 3]
    assert numbers(best(some, 2)) == [5, 2]


def test_the_fewer_terms_are_lacking_the_better() -> None:
    some = [ended(1, -0.1, (0, 1)), ended(2, -0.2, (1,)), ended(3, -9.0), ended(4, -0.3, (0,))]
    assert numbers(best(some, 9)) == [3, 2, 4, 1]


def test_what_was_still_going_on_comes_last() -> None:
    cut = ended(1, -0.1, reason=StopReason.TIME_LIMIT)
    assert numbers(best([cut, ended(2, -9.0, (0,)), ended(3, -5.0)], 9)) == [3, 2, 1]


def test_alternative_that_was_still_going_on_keeps_its_number() -> None:
    cut = ended(1, -5.0, reason=StopReason.TIME_LIMIT)
    assert numbers(best([ended(2, -0.1).as_alternative(1), cut.as_alternative(0)], 9)) == [1, 2]


def test_alternatives_come_in_the_order_of_their_numbers() -> None:
    some = [ended(1, -0.1).as_alternative(2), ended(2, -5.0).as_alternative(0)]
    some.append(ended(3, -0.2).as_alternative(1))
    assert numbers(best(some, 9)) == [2, 3, 1]


def answering(searches: int, **options: Any) -> HypothesisPool:
    request = generation([EOS], made(**options))
    return HypothesisPool(request, Constraints(request.options, EOS, WORDS, spelt), searches)


def test_answer_comes_with_the_last_search_and_has_the_best_of_all() -> None:
    answer = answering(3, num_hypotheses=3)
    assert answer.add([ended(1, -3.0), ended(2, -1.0)]) == []
    assert answer.add([]) == []
    [(request, found)] = answer.add([ended(3, -2.0), ended(4, -4.0)])
    assert request is answer.request
    ought = [ended(2, 0.0), ended(3, 0.0), ended(1, 0.0)]
    assert found == Finished([entry.hypothesis for entry in ought])


def test_answer_keeps_all_where_coverage_may_yet_raise_one() -> None:
    answer = answering(1, num_hypotheses=1, coverage_penalty=0.5)
    [(_, found)] = answer.add([ended(number, -float(number)) for number in (3, 1, 2)])
    assert [one.token_ids for one in found.hypotheses] == [[1], [2], [3]]
