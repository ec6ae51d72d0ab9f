import logging
import math
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from tests.support.logged import fields_of
from tests.unit.server.front.calls import details, failure, line_of, trailers
from tests.unit.server.front.echo import TOKEN_SCORE, manifest
from tests.unit.server.front.service import Service, until
from tests.unit.server.open_inference.tensor import asking, tensors

from seqserve.v1 import generation_pb2 as pb
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.open_inference.inference import InferenceRequest

Code = grpc.StatusCode
TEXT = "Grüße aus Köln 🙂"
INFER = "GRPCInferenceService.ModelInfer"


@pytest.mark.parametrize("raw", [False, True])
async def test_texts_are_answered_in_order(service: Service, raw: bool) -> None:
    # More than fit the slots and the queue.
    texts = [f"{number} {TEXT}"[: 5 + number] for number in range(30)]
    answer = await service.inference.ModelInfer(asking(*texts, raw=raw, id="mine"))
    assert (answer.model_name, answer.model_version, answer.id) == ("echo", "2", "mine")
    assert bool(answer.raw_output_contents) is raw
    found = tensors(answer)
    assert found["text"] == texts
    assert found["stop_reason"] == ["EOS"] * len(texts)
    tokens = [len(text.encode()) + 1 for text in texts]
    assert found["score"] == [TOKEN_SCORE * count for count in tokens]
    assert found["normalized_score"] == [TOKEN_SCORE] * len(texts)
    assert service.engine.slots_in_use == 0


async def test_outputs_have_the_shape_of_the_input(service: Service) -> None:
    flat = await service.inference.ModelInfer(asking("a", "b"))
    assert {tuple(output.shape) for output in flat.outputs} == {(2,)}
    deep = await service.inference.ModelInfer(asking("a", "b", shape=[2, 1]))
    assert {tuple(output.shape) for output in deep.outputs} == {(2, 1)}


async def test_parameters_are_options(service: Service, submitted: list[GenerateSpec]) -> None:
    options = {"max_decoding_length": 9, "beam_size": 3, "length_penalty": 0.5}
    others = {"disable_unk": True, "stop_sequences": '["."]', "priority": 1, "timeout": 1000}
    asked = asking("a", **options, **others)
    await service.inference.ModelInfer(asked)
    [sent] = submitted
    assert {name: getattr(sent.options, name) for name in options} == options
    assert (sent.options.suppressed, sent.options.stops) == (((3,),), (".",))


@pytest.mark.parametrize(
    ("outputs", "scored"), [(["text"], False), (["text", "score"], True), ([], True)]
)
async def test_scores_are_computed_only_if_requested(
    service: Service, submitted: list[GenerateSpec], outputs: list[str], scored: bool
) -> None:
    await service.inference.ModelInfer(asking("a", outputs=outputs))
    assert submitted[0].options.return_scores is scored


TERMS = '[{"source": "tea", "target": "eine Tasse Tee"}]'
SHORT = {"beam_size": 2, "max_decoding_length": 2}
BAD: dict[str, tuple[Any, str]] = {
    "empty text": (asking("good", ""), "inputs.text[1]"),
    "text too long": (asking("good", "good", "a" * 100, raw=True), "inputs.text[2]"),
    "option out of bounds": (asking("a", beam_size=0), "parameters.beam_size"),
    "options that contradict": (asking("a", beam_size=2, seed=1), "parameters.beam_size"),
    "terms that do not fit": (asking("tea", terms=TERMS, **SHORT), "parameters.terms"),
    "pieces": (asking("a", stream=True), "parameters.stream"),
    "version": (asking("a", version="latest"), "model_version"),
}


@pytest.mark.parametrize(("asked", "field"), BAD.values(), ids=BAD)
async def test_wrong_field_is_named(service: Service, asked: Any, field: str) -> None:
    error = await failure(service.inference.ModelInfer(asked))
    assert error.code() is Code.INVALID_ARGUMENT
    assert error.details().startswith(f"{field}: ")
    assert details(error, BadRequest).field_violations[0].field == field
    assert trailers(error)["x-request-id"]
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)


async def test_unknown_model_is_not_found(service: Service) -> None:
    error = await failure(service.inference.ModelInfer(asking("a", model="nothing")))
    assert error.code() is Code.NOT_FOUND
    assert "echo/2" in (error.details() or "")
    error = await failure(service.inference.ModelInfer(asking("a", version="3")))
    assert error.code() is Code.NOT_FOUND


async def test_one_text_that_fails_ends_the_call(service: Service) -> None:
    service.runtime.hold_after(2)
    error = await failure(service.inference.ModelInfer(asking("a" * 40, "b" * 40, "")))
    assert error.code() is Code.INVALID_ARGUMENT
    # The engine has read that they are cancelled once it answers what it is asked then.
    await service.value("slots")
    service.runtime.go_on()
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)
    assert await service.value("stop_total", model="echo", reason="eos") == 0


async def test_many_texts_are_one_line(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await service.inference.ModelInfer(asking(TEXT, "secret"), metadata=(("x-request-id", "my-1"),))
    [line] = fields_of(caplog)
    assert line.pop("ms") > 0
    tokens = len(TEXT.encode()) + len("secret")
    counts = {"sources": 2, "source_tokens": tokens + 2, "generated_tokens": tokens}
    assert line == line_of(INFER, id="my-1", **counts)
    assert "secret" not in caplog.text + str(line)
    labels = {"method": INFER, "code": "OK", "model": "echo"}
    await service.until_value(1, "requests_total", **labels)


BEST = pb.Hypothesis(text="ä", score=-1.5, normalized_score=-0.5, stop_reason="STOP_REASON_LENGTH")
NEXT = pb.Hypothesis(text="b", score=-3.0, normalized_score=-1.0, stop_reason="STOP_REASON_EOS")


def answer(*hypotheses: pb.Hypothesis) -> pb.GenerateResponse:
    return pb.GenerateResponse(hypotheses=hypotheses)


@pytest.mark.parametrize("raw", [False, True])
def test_missing_hypotheses_are_empty(raw: bool) -> None:
    asked = InferenceRequest.read(asking("a", "b", raw=raw, num_hypotheses=2), manifest())
    response = asked.response([answer(BEST, NEXT), answer(NEXT)])
    assert bool(response.raw_output_contents) is raw
    assert tensors(response) == {
        "text": [["ä", "b"], ["b", ""]],
        "score": [[-1.5, -3.0], [-3.0, -math.inf]],
        "normalized_score": [[-0.5, -1.0], [-1.0, -math.inf]],
        "stop_reason": [["LENGTH", "EOS"], ["EOS", ""]],
    }


def test_flat_response_has_one_size() -> None:
    asked = InferenceRequest.read(asking("a", "b", outputs=["text"]), manifest())
    assert tensors(asked.response([answer(BEST), answer(NEXT)])) == {"text": ["ä", "b"]}
