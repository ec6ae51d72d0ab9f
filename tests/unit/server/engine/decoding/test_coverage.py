import math
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.decoding.table import make_options

from seqserve_server.contract.events import Hypothesis, StopReason
from seqserve_server.engine.decoding.hypotheses import coverage, ranked_by_coverage
from seqserve_server.engine.packing import Array


def weights(*rows: list[float]) -> Array:
    return np.array(rows, np.float32)


def test_a_source_that_was_attended_to_in_full_costs_nothing() -> None:
    assert coverage(weights([1.0, 0.0], [0.0, 1.0])) == 0.0
    # One token counts 1 at most, and does not make up for another.
    assert coverage(weights([1.0, 0.25], [1.0, 0.25])) == pytest.approx(math.log(0.5))


def test_attention_of_all_target_tokens_to_a_source_token_is_summed() -> None:
    found = coverage(weights([0.2, 0.7, 0.1], [0.3, 0.1, 0.6], [0.1, 0.8, 0.1]))
    assert found == pytest.approx(math.log(0.6) + math.log(0.8))


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


def test_a_hypothesis_that_covers_more_of_the_source_ranks_higher() -> None:
    good, poor = (0.5 * coverage(each) for each in (GOOD, POOR))
    seen = [(found(1, -1.0), POOR), (found(2, -1.2), GOOD), (found(3, -1.1), GOOD)]
    assert ranked(seen, num_hypotheses=3) == [
        (3, pytest.approx(-1.1 + good)),
        (2, pytest.approx(-1.2 + good)),
        (1, pytest.approx(-1.0 + poor)),
    ]
    assert ranked(seen, num_hypotheses=1)[0][0] == 3


def test_the_score_does_not_change_and_attention_stays_with_its_hypothesis() -> None:
    seen = [(found(1, -1.0), POOR), (found(2, -1.1), GOOD)]
    best = ranked_by_coverage(
        seen, make_options(beam_size=4, coverage_penalty=0.5, num_hypotheses=2)
    )
    assert [one.score for one, _ in best] == [-5.0, -5.0]
    assert best[0][1] is GOOD
    assert best[1][1] is POOR


def test_terms_rank_before_coverage_and_equals_stay_in_their_order() -> None:
    seen = [(found(1, -1.0, (0,)), GOOD), (found(2, -9.0), POOR), (found(3, -9.0), POOR)]
    assert [token for token, _ in ranked(seen, num_hypotheses=3)] == [2, 3, 1]


def test_an_interrupted_hypothesis_ranks_last_whatever_it_covers() -> None:
    cut = found(1, -0.1)._replace(stop_reason=StopReason.TIME_LIMIT)
    seen = [(cut, GOOD), (found(2, -9.0), POOR)]
    assert [token for token, _ in ranked(seen, num_hypotheses=2)] == [2, 1]


def test_scores_rank_hypotheses_even_where_they_are_not_returned() -> None:
    seen = [(found(1, -1.0), POOR), (found(2, -1.1), GOOD)]
    assert ranked(seen, num_hypotheses=2, return_scores=False) == [(2, None), (1, None)]
    options = make_options(beam_size=4, coverage_penalty=0.5, return_scores=False)
    assert ranked_by_coverage(seen, options)[0][0].score is None
