"""What may come next in a row: forced tokens, alternatives, top tokens or a distribution."""

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    VOCABULARY_SIZE,
    A,
    B,
    C,
    D,
    TableRuntime,
    always,
    log,
    make_options,
    make_request,
    make_sampling,
    text_of,
)

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.constraints import Constraints
from seqserve_server.engine.decoding.hypotheses import HypothesisPool
from seqserve_server.engine.decoding.logits import Distribution, RankedTokens, normalize
from seqserve_server.engine.decoding.proposals import Proposal, Proposals, alternative
from seqserve_server.engine.decoding.rows import Rows

TABLES = ({A: 0.7, EOS: 0.3}, {A: 0.4, B: 0.3, C: 0.2, D: 0.1})


def proposal_for(row: int, options: DecodingOptions) -> Proposal:
    """Proposes a token after a step of two rows; row 0 is empty, row 1 holds A and B."""
    runtime = TableRuntime()
    cache = SlotCache(runtime, 2)
    rows = Rows(cache, 9)
    constraints = Constraints(options, EOS, range(VOCABULARY_SIZE), text_of)
    pool = HypothesisPool(make_request([EOS], options), constraints, 2)
    for index, table in enumerate(TABLES):
        runtime.tables.append(always(table))
        cache.join(index, runtime.encode([[index, EOS]]), 0)
        rows.join([index], pool)
    for length, token in enumerate((A, B), 1):
        rows.append(np.array([1]), length, np.array([token]), np.zeros(1))
    cache.lengths[1] = 2
    cache.set_outputs(top_k=3, logits=True)
    cache.advance(2)
    return Proposals(rows).of(row)


def test_the_graphs_own_choice_stands_by_default() -> None:
    assert proposal_for(1, make_options(stops=("x",))) == Proposal()


def test_a_prefix_is_forced_without_a_log_probability() -> None:
    proposal = proposal_for(1, make_options(prefix=(A, B, D), return_top_tokens=2))
    assert proposal.next_token == (D, pytest.approx(math.nan, nan_ok=True))
    assert (proposal.choices, proposal.top_tokens) == (None, ())


def test_top_tokens_are_listed_for_the_answer() -> None:
    found = proposal_for(1, make_options(return_top_tokens=2))
    assert found.top_tokens == [(A, log(0.4)), (B, log(0.3))]


@pytest.mark.parametrize("probability", [0.0, 0.9])
def test_the_first_alternative_begins_with_the_best_token_and_is_never_dropped(
    probability: float,
) -> None:
    options = {"prefix": (A, B), "num_hypotheses": 2, "return_alternatives": True}
    found = proposal_for(1, make_options(**options, min_alternative_expansion_prob=probability))
    assert (found.next_token, found.is_improbable) == ((A, log(0.4)), False)


def test_the_graphs_top_tokens_are_enough_where_no_probability_changes() -> None:
    found = proposal_for(1, make_options(return_top_tokens=2)).choices
    assert isinstance(found, RankedTokens)
    assert found.pairs(9) == [(A, log(0.4)), (B, log(0.3)), (C, log(0.2))]


def test_all_tokens_are_ranked_where_probabilities_change() -> None:
    found = proposal_for(1, make_options(repetition_penalty=2.0)).choices
    assert isinstance(found, Distribution)
    whole = 0.4**2 + 0.3**2 + 0.2 + 0.1
    expected = [(C, 0.2), (A, 0.4**2), (D, 0.1), (B, 0.3**2)]
    assert found.pairs(4) == [(token, log(share / whole)) for token, share in expected]


def test_sampling_by_top_p_alone_takes_the_distribution_as_it_is() -> None:
    found = proposal_for(0, make_options(sampling=make_sampling(top_p=0.9))).choices
    assert isinstance(found, Distribution)
    assert found.pairs(2) == [(A, log(0.7)), (EOS, log(0.3))]


LOGITS = np.log(np.array([0.1, 0.2, 0.4, 0.3], np.float32))
ORDER = np.argsort(-LOGITS)
TOP_TOKENS = RankedTokens(ORDER, LOGITS[ORDER])


def first_tokens(
    found: RankedTokens | Distribution, **options: Any
) -> list[tuple[int, Any] | None]:
    """Gives the first token of each of four alternatives."""
    some = make_options(return_alternatives=True, num_hypotheses=4, **options)
    return [alternative(found, index, some) for index in range(4)]


@pytest.mark.parametrize(
    "found",
    [Distribution(LOGITS, [], [normalize]), TOP_TOKENS],
    ids=["a distribution", "top tokens"],
)
@pytest.mark.parametrize(("probability", "count"), [(0.0, 4), (0.05, 4), (0.15, 3), (0.35, 1)])
def test_alternatives_begin_with_the_best_tokens_that_are_probable_enough(
    found: Any, probability: float, count: int
) -> None:
    expected = [(2, log(0.4)), (3, log(0.3)), (1, log(0.2)), (0, log(0.1))]
    first = first_tokens(found, min_alternative_expansion_prob=probability)
    assert first == [*expected[:count], *[None] * (4 - count)]


def test_the_first_alternative_stays_however_improbable_it_is() -> None:
    first, *others = first_tokens(TOP_TOKENS, min_alternative_expansion_prob=1.0)
    assert first == (2, log(0.4))
    assert others == [None] * 3


def test_an_alternative_of_exactly_the_minimum_probability_stays() -> None:
    level = RankedTokens(np.array([7, 5, 6]), np.array([0.0, 0.0, -1e-3]))
    found = first_tokens(level, min_alternative_expansion_prob=1.0)
    assert found == [(7, 0.0), (5, 0.0), None, None]


def test_a_suppressed_token_is_no_alternative() -> None:
    suppressed = RankedTokens(np.array([7, 5, 6]), np.array([0.0, -80.0, -1e30]))
    assert first_tokens(suppressed) == [(7, 0.0), (5, -80.0), None, None]
