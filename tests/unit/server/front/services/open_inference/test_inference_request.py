"""The response to a request: outputs, shapes and encodings."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from tests.unit.server.front.echo import byte_tokenizer, manifest
from tests.unit.server.front.services.open_inference.tensor import asking, tensors

from seqserve.v1 import generation_pb2
from seqserve_server.contract.limits import Provider
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.services.open_inference.inference_request import InferenceRequest

Hypothesis = generation_pb2.Hypothesis
BEST = Hypothesis(
    text="ä", score=-1.5, normalized_score=-0.5, stop_reason=generation_pb2.STOP_REASON_LENGTH
)
NEXT = Hypothesis(
    text="b", score=-3.0, normalized_score=-1.0, stop_reason=generation_pb2.STOP_REASON_EOS
)
MODEL = ServedModel(
    manifest=manifest(),
    tokenizer=byte_tokenizer(),
    engine=cast(Any, None),
    provider=Provider.CPU,
)


@pytest.mark.parametrize("raw", [False, True])
def test_missing_hypotheses_are_empty(raw: bool) -> None:
    asked = InferenceRequest.read(asking("a", "b", raw=raw, num_hypotheses=2), MODEL)
    response = asked.response([[BEST, NEXT], [NEXT]])
    assert bool(response.raw_output_contents) is raw
    assert tensors(response) == {
        "text": [["ä", "b"], ["b", ""]],
        "score": [[-1.5, -3.0], [-3.0, -math.inf]],
        "normalized_score": [[-0.5, -1.0], [-1.0, -math.inf]],
        "stop_reason": [["LENGTH", "EOS"], ["EOS", ""]],
    }


def test_flat_response_has_one_size() -> None:
    asked = InferenceRequest.read(asking("a", "b", outputs=["text"]), MODEL)
    assert tensors(asked.response([[BEST], [NEXT]])) == {"text": ["ä", "b"]}
