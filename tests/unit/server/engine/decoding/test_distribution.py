import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import log, make_options

from seqserve_server.engine.decoding.logits import (
    Distribution,
    RankedTokens,
    normalize,
    processors_of,
)
from seqserve_server.engine.step import MASKED_LOGIT

LOGITS = np.log(np.array([0.1, 0.2, 0.4, 0.3], np.float32))


def test_top_tokens_are_listed_with_their_log_probabilities() -> None:
    found = Distribution(LOGITS, [], [normalize])
    assert found.pairs(2) == [(2, log(0.4)), (3, log(0.3))]
    tokens, log_probabilities = found.top(3)
    assert tokens.tolist() == [2, 3, 1]
    assert log_probabilities.tolist() == [log(0.4), log(0.3), log(0.2)]
    assert found.pairs(0) == []


@given(count=st.integers(0, 5))
def test_the_first_tokens_of_the_graphs_list_are_its_top_tokens(count: int) -> None:
    tokens, log_probabilities = np.array([5, 7, 6]), np.array([-0.5, -1.0, -1.5], np.float32)
    listed = RankedTokens(tokens, log_probabilities)
    pairs = list(zip(tokens.tolist(), log_probabilities.tolist(), strict=True))[:count]
    assert listed.pairs(count) == pairs


@pytest.mark.parametrize("penalty", [1.0, 1 / 64, 64.0])
def test_suppressed_tokens_are_not_listed(penalty: float) -> None:
    """Not even where a repetition penalty below 1 favours them."""
    logits = np.array([-1.0, MASKED_LOGIT, -1.0, MASKED_LOGIT], np.float32)
    found = Distribution(
        logits, [1, 3], processors_of(make_options(repetition_penalty=penalty)) or [normalize]
    )
    assert found.pairs(4) == [(0, log(0.5)), (2, log(0.5))]
    assert found.log_probabilities[[1, 3]].tolist() == [float(MASKED_LOGIT)] * 2
    assert RankedTokens(np.array([7, 5]), np.array([0.0, MASKED_LOGIT])).pairs(2) == [(7, 0.0)]
