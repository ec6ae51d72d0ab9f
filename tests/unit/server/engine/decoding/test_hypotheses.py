import math
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    VOCABULARY_SIZE,
    make_options,
    make_request,
    text_of,
)

from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.engine.decoding.constraints import Constraints, End
from seqserve_server.engine.decoding.hypotheses import (
    FinishedHypothesis,
    HypothesisPool,
    PartialHypothesis,
    best,
    coverage,
    rank_of,
    ranked_by_coverage,
)
from seqserve_server.engine.packing import Array


def partial(*tokens: int, prefix: tuple[int, ...] = ()) -> PartialHypothesis:
    """Makes a forced prefix and tokens after it; the log-probability of token n is -n."""
    found = [*[math.nan] * len(prefix), *(-float(token) for token in tokens)]
    top_tokens = [*[[]] * len(prefix), *([(token, -float(token))] for token in tokens)]
    return PartialHypothesis([*prefix, *tokens], found, -float(sum(tokens)), top_tokens)


def test_only_what_was_requested_is_returned() -> None:
    end = End(StopReason.EOS, 1)
    plain = partial(4, 2).hypothesis(end, make_options())
    assert plain == Hypothesis([4], -6.0, StopReason.EOS, -3.0)
    without_score = partial(4, 2).hypothesis(
        end, make_options(return_scores=False, return_token_scores=True)
    )
    assert (without_score.score, without_score.normalized_score) == (None, None)
    assert without_score.token_scores == [-4.0, -2.0]


def test_the_score_is_kept_where_coverage_is_added_later() -> None:
    options = make_options(return_scores=False, coverage_penalty=0.5)
    found = partial(4, 2).hypothesis(End(StopReason.EOS, 1), options)
    assert (found.score, found.normalized_score) == (-6.0, -3.0)


def test_terms_count_only_in_the_tokens_that_are_kept() -> None:
    options = make_options(terms=((4, 5), (7, 4), (5,), (6,)))
    some = partial(4, 5, 6, prefix=(7,))
    assert some.hypothesis(End(StopReason.LENGTH, 4), options).unmet_terms == []
    assert some.hypothesis(End(StopReason.EOS, 3), options).unmet_terms == [3]
    assert some.hypothesis(End(StopReason.STOP_SEQUENCE, 2, 1), options).unmet_terms == [0, 2, 3]


def ended(
    token: int, score: float, unmet: tuple[int, ...] = (), reason: StopReason = StopReason.EOS
) -> FinishedHypothesis:
    hypothesis = Hypothesis([token], None, reason, unmet_terms=unmet)
    return FinishedHypothesis(hypothesis, rank_of(hypothesis, score))


def tokens_of(found: list[FinishedHypothesis]) -> list[int]:
    return [entry.hypothesis.token_ids[0] for entry in found]


def test_the_best_come_first_and_among_equals_the_one_that_ended_first() -> None:
    some = [ended(1, -2.0), ended(2, -1.0), ended(3, -2.0), ended(4, -1.0), ended(5, -0.5)]
    assert tokens_of(best(some, 9)) == [5, 2, 4, 1, 3]
    assert tokens_of(best(some, 2)) == [5, 2]


def test_hypotheses_rank_by_unmet_terms_before_the_score() -> None:
    some = [ended(1, -0.1, (0, 1)), ended(2, -0.2, (1,)), ended(3, -9.0), ended(4, -0.3, (0,))]
    assert tokens_of(best(some, 9)) == [3, 2, 4, 1]


def test_an_interrupted_hypothesis_ranks_last() -> None:
    cut = ended(1, -0.1, reason=StopReason.TIME_LIMIT)
    assert tokens_of(best([cut, ended(2, -9.0, (0,)), ended(3, -5.0)], 9)) == [3, 2, 1]


def test_an_interrupted_alternative_keeps_its_rank() -> None:
    cut = ended(1, -5.0, reason=StopReason.TIME_LIMIT)
    assert tokens_of(best([ended(2, -0.1).as_alternative(1), cut.as_alternative(0)], 9)) == [1, 2]


def make_pool(num_searches: int, **options: Any) -> HypothesisPool:
    request = make_request([EOS], make_options(**options))
    constraints = Constraints(request.options, EOS, range(VOCABULARY_SIZE), text_of)
    return HypothesisPool(request, constraints, num_searches)


def test_the_answer_comes_with_the_last_search_and_has_the_best_of_all() -> None:
    pool = make_pool(3, num_hypotheses=3)
    assert pool.add([ended(1, -3.0), ended(2, -1.0)]) == []
    assert pool.add([]) == []
    [(request, found)] = pool.add([ended(3, -2.0), ended(4, -4.0)])
    assert request is pool.request
    expected = [ended(2, 0.0), ended(3, 0.0), ended(1, 0.0)]
    assert found == Finished([entry.hypothesis for entry in expected])


def test_the_answer_has_all_hypotheses_where_coverage_changes_their_ranking_later() -> None:
    pool = make_pool(1, num_hypotheses=1, coverage_penalty=0.5)
    [(_, found)] = pool.add([ended(token, -float(token)) for token in (3, 1, 2)])
    assert [one.token_ids for one in found.hypotheses] == [[1], [2], [3]]


def weights(*rows: list[float]) -> Array:
    return np.array(rows, np.float32)


def test_a_source_that_was_attended_to_in_full_costs_nothing() -> None:
    assert coverage(weights([1.0, 0.0], [0.0, 1.0])) == 0.0
    # One token counts 1 at most, and does not make up for another.
    assert coverage(weights([1.0, 0.25], [1.0, 0.25])) == pytest.approx(math.log(0.5))


def test_a_source_token_without_attention_is_left_out() -> None:
    """The logarithm of its sum would be minus infinity."""
    assert coverage(weights([0.5, 0.0, 0.5])) == pytest.approx(2 * math.log(0.5))
    assert coverage(np.zeros((0, 4), np.float32)) == 0.0


def test_the_sum_is_computed_in_double_precision() -> None:
    tenth = float(np.float32(0.1))
    assert coverage(np.full((9, 1), tenth, np.float32)) == pytest.approx(
        math.log(9 * tenth), rel=1e-14
    )


GOOD = weights([0.5, 0.5])
POOR = weights([0.9, 0.1])


def found(token: int, normalized: float, unmet: tuple[int, ...] = ()) -> Hypothesis:
    return Hypothesis([token], -5.0, StopReason.EOS, normalized, unmet_terms=unmet)


def ranked(seen: list[tuple[Hypothesis, Array]], **options: Any) -> list[tuple[int, Any]]:
    """Gives the token and the normalised score of each, best first."""
    best = ranked_by_coverage(seen, make_options(beam_size=4, coverage_penalty=0.5, **options))
    return [(one.token_ids[0], one.normalized_score) for one, _ in best]


def test_terms_rank_before_coverage_and_equals_stay_in_their_order() -> None:
    seen = [(found(1, -1.0, (0,)), GOOD), (found(2, -9.0), POOR), (found(3, -9.0), POOR)]
    assert [token for token, _ in ranked(seen, num_hypotheses=3)] == [2, 3, 1]


def test_an_interrupted_hypothesis_ranks_last_whatever_it_covers() -> None:
    cut = found(1, -0.1)._replace(stop_reason=StopReason.TIME_LIMIT)
    seen = [(cut, GOOD), (found(2, -9.0), POOR)]
    assert [token for token, _ in ranked(seen, num_hypotheses=2)] == [2, 1]
