from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import log, made

from seqserve_server.engine.cache import MASKED_LOGIT
from seqserve_server.engine.decoding.distribution import Distribution, TopTokens
from seqserve_server.engine.decoding.processors import normalize, processors_of

A, B, C, D = 1, 2, 3, 4

SHARES = [0.1, 0.2, 0.4, 0.3]
LOGITS = np.log(np.array(SHARES, np.float32))


def test_best_words_are_listed_with_their_log_probabilities() -> None:
    found = Distribution(LOGITS, [], [normalize])
    assert found.pairs(2) == [(2, log(0.4)), (3, log(0.3))]
    words, log_probabilities = found.top(3)
    assert words.tolist() == [2, 3, 1]
    assert log_probabilities.tolist() == [log(0.4), log(0.3), log(0.2)]
    assert found.pairs(0) == []


@given(count=st.integers(0, 5))
def test_first_of_what_the_graph_has_listed_are_the_best(count: int) -> None:
    words, found = np.array([5, 7, 6]), np.array([-0.5, -1.0, -1.5], np.float32)
    listed = TopTokens(words, found)
    ought = list(zip(words.tolist(), found.tolist(), strict=True))[:count]
    assert listed.pairs(count) == ought
    best = listed.top(count)
    assert list(zip(best.token_ids.tolist(), best.log_probabilities.tolist(), strict=True)) == ought


@pytest.mark.parametrize("penalty", [1.0, 1 / 64, 64.0])
def test_what_is_forbidden_is_not_listed(penalty: float) -> None:
    """Even where it is to be repeated more than anything."""
    scores = np.array([-1.0, MASKED_LOGIT, -1.0, MASKED_LOGIT], np.float32)
    found = Distribution(
        scores, [1, 3], processors_of(made(repetition_penalty=penalty)) or [normalize]
    )
    assert found.pairs(4) == [(0, log(0.5)), (2, log(0.5))]
    assert found.log_probabilities[[1, 3]].tolist() == [float(MASKED_LOGIT)] * 2
    assert TopTokens(np.array([7, 5]), np.array([0.0, MASKED_LOGIT])).pairs(2) == [(7, 0.0)]
