from typing import Any

import pytest
from tests.unit.server.engine.decoding.table import make_options, make_sampling

from seqserve_server.engine.decoding.step_outputs import StepOutputs


@pytest.mark.parametrize(
    ("options", "top_k", "logits"),
    [
        ({}, 0, False),
        ({"prefix": (5,), "stops": ("a",)}, 0, False),
        ({"return_top_tokens": 3}, 3, False),
        ({"repetition_penalty": 1.1}, 0, True),
        ({"sampling": make_sampling(top_k=0)}, 0, True),
        # The graph lists this many top tokens itself.
        ({"sampling": make_sampling(top_k=5)}, 5, False),
        ({"sampling": make_sampling(top_k=5), "return_top_tokens": 7}, 7, False),
        ({"sampling": make_sampling(top_k=64)}, 64, False),
        ({"sampling": make_sampling(top_k=65)}, 0, True),
        # A beam search ranks twice as many continuations as it has beams.
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
def test_a_row_needs_only_what_its_options_take(
    options: dict[str, Any], top_k: int, logits: bool
) -> None:
    assert StepOutputs.of(make_options(**options)) == StepOutputs(top_k, logits)


def test_a_row_of_few_candidates_never_needs_the_logits_of_all_tokens() -> None:
    options = make_options(beam_size=3, repetition_penalty=1.1)
    assert StepOutputs.of(options, is_limited=True) == StepOutputs(6, False)
