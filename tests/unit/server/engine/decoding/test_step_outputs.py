from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.engine.decoding.table import made

from seqserve_server.contract.options import Sampling
from seqserve_server.engine.decoding.step_outputs import StepOutputs, step_outputs_of


def drawing(top_k: int) -> Sampling:
    return Sampling(1.0, top_k, 1.0, 0.0, seed=1)


@pytest.mark.parametrize(
    ("options", "ranked", "shows_scores"),
    [
        ({}, 0, False),
        ({"prefix": (5,), "stops": ("a",)}, 0, False),
        ({"return_top_tokens": 3}, 3, False),
        ({"repetition_penalty": 1.1}, 0, True),
        ({"sampling": drawing(0)}, 0, True),
        # The graph finds so many best words for less.
        ({"sampling": drawing(5)}, 5, False),
        ({"sampling": drawing(5), "return_top_tokens": 7}, 7, False),
        ({"sampling": drawing(64)}, 64, False),
        ({"sampling": drawing(65)}, 0, True),
        # A beam has twice as many continuations as hypotheses.
        ({"beam_size": 3}, 6, False),
        ({"beam_size": 3, "return_top_tokens": 7}, 7, False),
        ({"beam_size": 3, "terms": ((5,),)}, 6, True),
        ({"beam_size": 3, "prefix": (5,), "prefix_bias_beta": 0.5}, 6, True),
        ({"num_hypotheses": 9}, 0, False),
        ({"num_hypotheses": 9, "return_alternatives": True}, 9, False),
        ({"num_hypotheses": 9, "return_alternatives": True, "beam_size": 3}, 9, False),
        ({"num_hypotheses": 3, "return_alternatives": True, "beam_size": 3}, 6, False),
    ],
    ids=str,
)
def test_only_what_is_needed_is_asked_for(
    options: dict[str, Any], ranked: int, shows_scores: bool
) -> None:
    assert step_outputs_of(made(**options)) == StepOutputs(ranked, shows_scores)
