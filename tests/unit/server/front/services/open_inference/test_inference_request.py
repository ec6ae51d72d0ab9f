import math

import pytest
from tests.unit.server.front.echo import echo_model
from tests.unit.server.front.services.open_inference.tensor import asking, tensors

from seqserve.v1 import generation_pb2
from seqserve_server.open_inference.inference import InferenceRequest

Hypothesis = generation_pb2.Hypothesis
BEST = Hypothesis(
    text="ä", score=-1.5, normalized_score=-0.5, stop_reason=generation_pb2.STOP_REASON_LENGTH
)
NEXT = Hypothesis(
    text="b", score=-3.0, normalized_score=-1.0, stop_reason=generation_pb2.STOP_REASON_EOS
)
MODEL = echo_model()


def answer(*hypotheses: Hypothesis) -> generation_pb2.GenerateResponse:
    return generation_pb2.GenerateResponse(hypotheses=hypotheses)


@pytest.mark.parametrize("raw", [False, True])
def test_missing_hypotheses_are_empty(raw: bool) -> None:
    asked = InferenceRequest.read(asking("a", "b", raw=raw, num_hypotheses=2), MODEL.manifest)
    response = asked.response([answer(BEST, NEXT), answer(NEXT)])
    assert bool(response.raw_output_contents) is raw
    assert tensors(response) == {
        "text": [["ä", "b"], ["b", ""]],
        "score": [[-1.5, -3.0], [-3.0, -math.inf]],
        "normalized_score": [[-0.5, -1.0], [-1.0, -math.inf]],
        "stop_reason": [["LENGTH", "EOS"], ["EOS", ""]],
    }


def test_flat_response_has_one_size() -> None:
    asked = InferenceRequest.read(asking("a", "b", outputs=["text"]), MODEL.manifest)
    assert tensors(asked.response([answer(BEST), answer(NEXT)])) == {"text": ["ä", "b"]}
