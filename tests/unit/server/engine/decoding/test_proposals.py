from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.decoding.table import (
    EOS,
    WORDS,
    TableRuntime,
    always,
    log,
    made,
    spelt,
)
from tests.unit.server.engine.requests import generation

from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.constraints import Constraints
from seqserve_server.engine.decoding.distribution import Distribution, TopTokens
from seqserve_server.engine.decoding.hypotheses import HypothesisPool
from seqserve_server.engine.decoding.processors import normalize
from seqserve_server.engine.decoding.proposals import Proposal, Proposals, alternative
from seqserve_server.engine.decoding.rows import Rows
from seqserve_server.engine.decoding.step_outputs import RequestedOutputs

A, B, C, D = 1, 2, 3, 4

SHARES = [0.1, 0.2, 0.4, 0.3]
LOGITS = np.log(np.array(SHARES, np.float32))


TABLES = ({A: 0.7, EOS: 0.3}, {A: 0.4, B: 0.3, C: 0.2, D: 0.1})


def proposal_for(row: int, options: DecodingOptions) -> Proposal:
    """Runs a step of two rows, of which the second holds A and B already."""
    runtime = TableRuntime()
    cache = SlotCache(runtime, 2)
    rows = Rows(cache, 9)
    request = generation([EOS], options)
    pool = HypothesisPool(request, Constraints(options, EOS, WORDS, spelt), 2)
    for index, table in enumerate(TABLES):
        runtime.tables.append(always(table))
        cache.join(index, runtime.encode([[index, EOS]]), 0)
        rows.join([index], pool)
    for length, token in enumerate((A, B), 1):
        rows.append(np.array([1]), length, np.array([token]), np.zeros(1))
    cache.lengths[1] = 2
    cache.request(top_k=3, logits=True, allowed=np.empty(0, np.int64), projects=True)
    cache.advance(2)
    return Proposals(rows, RequestedOutputs(cache)).of(row)


def step_of(row: int, options: DecodingOptions) -> Any:
    return proposal_for(row, options).found


def test_the_graphs_own_choice_stands_where_nothing_is_asked_for() -> None:
    assert proposal_for(1, made(stops=("x",))) == Proposal()


def test_a_prefix_is_forced_without_a_log_probability() -> None:
    found = proposal_for(1, made(prefix=(A, B, D), return_top_tokens=2))
    assert found.only == (D, pytest.approx(math.nan, nan_ok=True))
    assert (found.found, found.top_tokens) == (None, ())


def test_top_tokens_are_listed_for_the_answer() -> None:
    assert proposal_for(1, made(return_top_tokens=2)).top_tokens == [(A, log(0.4)), (B, log(0.3))]


@pytest.mark.parametrize(("probability", "is_dropped"), [(0.0, False), (0.9, True)])
def test_an_alternative_begins_with_its_own_token_or_is_dropped(
    probability: float, is_dropped: bool
) -> None:
    options = {"prefix": (A, B), "num_hypotheses": 2, "return_alternatives": True}
    # Both rows decode the first alternative, which is never dropped.
    first = proposal_for(1, made(**options, min_alternative_expansion_prob=probability))
    assert (first.only, first.is_dropped) == ((A, log(0.4)), False)
    found = TopTokens(np.array([A, B]), np.log(np.array([0.4, 0.3])))
    second = alternative(found, 1, made(**options, min_alternative_expansion_prob=probability))
    assert (second is None) == is_dropped


def test_what_the_graph_has_listed_is_enough_where_nothing_is_changed() -> None:
    found = step_of(1, made(return_top_tokens=2))
    assert isinstance(found, TopTokens)
    assert found.pairs(9) == [(A, log(0.4)), (B, log(0.3)), (C, log(0.2))]


def test_all_words_are_looked_at_where_something_is_changed() -> None:
    found = step_of(1, made(repetition_penalty=2.0))
    assert isinstance(found, Distribution)
    whole = 0.4**2 + 0.3**2 + 0.2 + 0.1
    ought = [(C, 0.2), (A, 0.4**2), (D, 0.1), (B, 0.3**2)]
    assert found.pairs(4) == [(word, log(share / whole)) for word, share in ought]
    plain = step_of(0, made(sampling=Sampling(1.0, 0, 1.0, 0.0, 1)))
    assert plain.pairs(2) == [(A, log(0.7)), (EOS, log(0.3))]


def first_words(found: TopTokens | Distribution, **options: Any) -> list[tuple[int, Any] | None]:
    options = {"return_alternatives": True, "num_hypotheses": 4} | options
    return [alternative(found, number, made(**options)) for number in range(4)]


def listed() -> TopTokens:
    words = np.argsort(-LOGITS)
    return TopTokens(words, LOGITS[words])


@pytest.mark.parametrize(
    "found", [Distribution(LOGITS, [], [normalize]), listed()], ids=["all", "few"]
)
def test_alternatives_begin_with_the_best_words_that_are_probable(found: Any) -> None:
    ought: list[tuple[int, Any] | None] = [
        (2, log(0.4)),
        (3, log(0.3)),
        (1, log(0.2)),
        (0, log(0.1)),
    ]
    assert first_words(found) == ought
    for least, count in ((0.05, 4), (0.15, 3), (0.35, 1)):
        few = [*ought[:count], *[None] * (4 - count)]
        assert first_words(found, min_alternative_expansion_prob=least) == few


def test_best_alternative_goes_on_however_improbable_it_is() -> None:
    first, *others = first_words(listed(), min_alternative_expansion_prob=1.0)
    assert first == (2, log(0.4))
    assert others == [None] * 3


def test_alternative_that_is_just_as_probable_as_asked_for_goes_on() -> None:
    level = TopTokens(np.array([7, 5, 6]), np.array([0.0, 0.0, -1e-3]))
    found = first_words(level, min_alternative_expansion_prob=1.0)
    assert found == [(7, 0.0), (5, 0.0), None, None]


def test_what_is_forbidden_is_no_alternative() -> None:
    forbidden = TopTokens(np.array([7, 5, 6]), np.array([0.0, -80.0, -1e30]))
    assert first_words(forbidden) == [(7, 0.0), (5, -80.0), None, None]
