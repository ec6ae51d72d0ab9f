"""ModelInfer, from the wire to the engine and back."""

import asyncio
import logging
import math
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from tests.unit.server.front.echo import MAX_TARGET, TOKEN_SCORE
from tests.unit.server.front.service import (
    Service,
    awaited,
    details,
    failure,
    request,
    serving,
    trailers,
    until,
)
from tests.unit.server.front.services.open_inference.tensor import asking, tensors

from seqserve.v1 import generation_pb2
from seqserve_server.contract.request import GenerateSpec

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


async def test_only_requested_outputs_are_returned(service: Service) -> None:
    answer = await service.inference.ModelInfer(asking("a", outputs=["stop_reason", "text"]))
    assert [output.name for output in answer.outputs] == ["stop_reason", "text"]


async def test_hypotheses_of_a_text_share_a_row(
    service: Service, submitted: list[GenerateSpec]
) -> None:
    asked = asking("a", "b", beam_size=4, num_hypotheses=3)
    found = tensors(await service.inference.ModelInfer(asked))
    # The fake engine finds only one hypothesis.
    assert found["stop_reason"] == [["EOS", "", ""]] * 2
    assert found["score"] == [[-1.0, -math.inf, -math.inf]] * 2


async def test_parameters_are_options(service: Service, submitted: list[GenerateSpec]) -> None:
    asked = asking(
        "a",
        max_decoding_length=9,
        beam_size=3,
        length_penalty=0.5,
        disable_unk=True,
        stop_sequences='["."]',
        priority=1,
        timeout=1000,
    )
    await service.inference.ModelInfer(asked)
    [sent] = submitted
    assert sent.options.max_decoding_length == 9
    assert sent.options.beam_size == 3
    assert sent.options.length_penalty == 0.5
    assert sent.options.suppressed == ((3,),)
    assert sent.options.stops == (".",)


@pytest.mark.parametrize(
    ("outputs", "scored"), [(["text"], False), (["text", "score"], True), ([], True)]
)
async def test_scores_are_computed_only_if_requested(
    service: Service, submitted: list[GenerateSpec], outputs: list[str], scored: bool
) -> None:
    await service.inference.ModelInfer(asking("a", outputs=outputs))
    assert submitted[0].options.return_scores is scored


TERMS = '[{"source": "tea", "target": "eine Tasse Tee"}]'
BAD: dict[str, tuple[Any, str]] = {
    "empty text": (asking("good", ""), "inputs.text[1]"),
    "text too long": (asking("good", "good", "a" * 100, raw=True), "inputs.text[2]"),
    "not UTF-8": (asking(b"\xff"), "inputs.text[0]"),
    "raw cut short": (asking("abc", shape=[2], raw=True), "raw_input_contents[0]"),
    "shape": (asking("a", shape=[1, 2]), "inputs.text.shape"),
    "output": (asking("a", outputs=["logits"]), "outputs"),
    "option out of bounds": (asking("a", beam_size=0), "parameters.beam_size"),
    "option of a wrong type": (asking("a", beam_size="4"), "parameters.beam_size"),
    "unknown option": (asking("a", warmth=0.5), "parameters"),
    "options that contradict": (asking("a", beam_size=2, seed=1), "parameters.beam_size"),
    "terms that do not fit": (
        asking("tea", beam_size=2, max_decoding_length=2, terms=TERMS),
        "parameters.terms",
    ),
    "pieces": (asking("a", stream=True), "parameters.stream"),
    "version": (asking("a", version="latest"), "model_version"),
    "version 0": (asking("a", version="0"), "model_version"),
}


@pytest.mark.parametrize(("asked", "field"), BAD.values(), ids=BAD)
async def test_wrong_field_is_named(service: Service, asked: Any, field: str) -> None:
    error = await failure(service.inference.ModelInfer(asked))
    assert error.code() is Code.INVALID_ARGUMENT
    assert (error.details() or "").startswith(f"{field}: ")
    assert details(error, BadRequest).field_violations[0].field == field
    assert trailers(error)["x-request-id"]
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)


async def test_unknown_model_is_not_found(service: Service) -> None:
    error = await failure(service.inference.ModelInfer(asking("a", model="nothing")))
    assert error.code() is Code.NOT_FOUND
    assert "echo/2" in (error.details() or "")
    error = await failure(service.inference.ModelInfer(asking("a", version="3")))
    assert error.code() is Code.NOT_FOUND


async def test_malformed_message_is_an_invalid_argument(service: Service) -> None:
    call = service.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    error = await failure(call(bytes([1 << 3 | 2, 1, 0xFF])))
    assert error.code() is Code.INVALID_ARGUMENT
    assert details(error, BadRequest).field_violations[0].field == "request"


async def test_one_text_that_fails_ends_the_call(service: Service) -> None:
    service.runtime.step_s = 0.02
    error = await failure(service.inference.ModelInfer(asking("a" * 40, "b" * 40, "")))
    assert error.code() is Code.INVALID_ARGUMENT
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)
    assert await service.value("stop_total", model="echo", reason="eos") == 0


async def test_cancel_frees_the_slots(service: Service) -> None:
    service.runtime.step_s = 0.02
    call = service.inference.ModelInfer(asking(*["a" * 48] * 6))
    await until(lambda: service.engine.slots_in_use == 4)
    call.cancel()
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)
    labels = {"method": INFER, "code": "CANCELLED", "model": "echo"}
    await service.until_value(1, "requests_total", **labels)


async def test_one_of_many_texts_waits_for_room_in_the_queue() -> None:
    async with serving(slots=2, max_queue=1) as service:
        service.runtime.may_run.clear()
        # Two may be under way at once; the queue has room for one.
        others = [asyncio.ensure_future(awaited(service.inference.ModelInfer(asking("a"))))]
        await until(lambda: service.engine.slots_in_use == 1)
        others.append(asyncio.ensure_future(awaited(service.inference.ModelInfer(asking("b")))))
        await until(lambda: service.engine.queue_depth == 1)
        many = asyncio.ensure_future(awaited(service.inference.ModelInfer(asking("c", "d", "e"))))
        await asyncio.sleep(0.05)
        service.runtime.may_run.set()
        assert tensors(await many)["text"] == ["c", "d", "e"]
        await asyncio.gather(*others)


async def test_call_of_many_texts_is_one_log_line(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await service.inference.ModelInfer(asking(TEXT, "secret"), metadata=(("x-request-id", "my-1"),))
    [line] = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert line.pop("ms") > 0
    tokens = len(TEXT.encode()) + len("secret")
    assert line == {
        "id": "my-1",
        "method": INFER,
        "code": "OK",
        "model": "echo",
        "version": 2,
        "sources": 2,
        "source_tokens": tokens + 2,
        "generated_tokens": tokens,
    }
    assert "secret" not in caplog.text + str(line)
    labels = {"method": INFER, "code": "OK", "model": "echo"}
    assert await service.value("requests_total", **labels) == 1


@pytest.mark.parametrize("texts", [["a"], [TEXT, "b" * MAX_TARGET, "c d"]])
async def test_same_answers_as_generate(service: Service, texts: list[str]) -> None:
    found = tensors(await service.inference.ModelInfer(asking(*texts, max_decoding_length=20)))
    for number, text in enumerate(texts):
        alone = await service.generation.Generate(request(text, max_decoding_length=20))
        [best] = alone.hypotheses
        assert found["text"][number] == best.text
        assert found["score"][number] == best.score
        reason = generation_pb2.StopReason.Name(best.stop_reason)
        assert reason == f"STOP_REASON_{found['stop_reason'][number]}"
