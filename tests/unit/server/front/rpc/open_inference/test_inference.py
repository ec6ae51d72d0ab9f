"""The Open Inference Protocol, from the wire to the engine and back."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, cast

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from tests.unit.server.front.rpc.echo import MAX_TARGET, PATIENCE_S, TOKEN_SCORE, manifest
from tests.unit.server.front.rpc.open_inference.tensor import asking, tensors
from tests.unit.server.front.rpc.service import (
    Service,
    details,
    failure,
    request,
    serving,
    trailers,
    until,
)

from seqserve import __version__
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ModelUnavailable
from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.request import Request
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.engine_client.refusals import RefusalCache
from seqserve_server.front.models.lifecycle import Control, ModelState
from seqserve_server.front.models.repository import Entry
from seqserve_server.front.rpc.open_inference.pb import open_inference_pb2

Code = grpc.StatusCode
TEXT = "Grüße aus Köln 🙂"
INFER = "GRPCInferenceService.ModelInfer"
STREAM = "GRPCInferenceService.ModelStreamInfer"


async def test_server(service: Service) -> None:
    live = await service.inference.ServerLive(open_inference_pb2.ServerLiveRequest())
    ready = await service.inference.ServerReady(open_inference_pb2.ServerReadyRequest())
    about = await service.inference.ServerMetadata(open_inference_pb2.ServerMetadataRequest())
    assert live.live and ready.ready
    assert (about.name, about.version) == ("seqserve", __version__)
    assert "model_configuration" in about.extensions


@pytest.mark.parametrize(
    ("name", "version", "is_ready"),
    [
        ("echo", "", True),
        ("", "", True),
        ("echo", "2", True),
        ("echo", "1", False),
        ("echo", "3", False),
        ("ruin", "", False),
        ("nothing", "", False),
    ],
)
async def test_model_is_ready(service: Service, name: str, version: str, is_ready: bool) -> None:
    asked = open_inference_pb2.ModelReadyRequest(name=name, version=version)
    assert (await service.inference.ModelReady(asked)).ready is is_ready


async def test_nothing_is_ready_without_its_engine(service: Service) -> None:
    service.hosts.may_launch.clear()
    service.hosts.last.break_down()
    await until(lambda: not service.remote.is_up)
    asked = open_inference_pb2.ModelReadyRequest(name="echo")
    assert not (await service.inference.ModelReady(asked)).ready
    assert not (await service.inference.ServerReady(open_inference_pb2.ServerReadyRequest())).ready
    index = await service.inference.RepositoryIndex(open_inference_pb2.RepositoryIndexRequest())
    assert {model.state for model in index.models} == {"UNAVAILABLE"}
    assert all(model.reason for model in index.models)
    error = await failure(service.inference.ModelInfer(asking("a")))
    assert error.code() is Code.UNAVAILABLE
    assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
    service.hosts.may_launch.set()


async def test_model_is_described(service: Service) -> None:
    asked = open_inference_pb2.ModelMetadataRequest(name="echo")
    metadata = await service.inference.ModelMetadata(asked)
    # The first version could not be loaded.
    assert (metadata.name, list(metadata.versions)) == ("echo", ["2"])
    config = await service.inference.ModelConfig(open_inference_pb2.ModelConfigRequest())
    assert config.config.name == "echo"


class Down:
    """Stands where an engine would be that has failed."""

    slots = max_rows = 1
    is_up = False
    promises = RefusalCache()

    def submit(self, request: Request) -> None:
        raise ModelUnavailable("down")


@pytest.fixture
def others(service: Service) -> Iterator[None]:
    """Adds ``echo/3`` and ``other/7``, which are loaded, but down."""
    [model] = service.repository.models()
    down = cast(RemoteEngine, Down())
    added = [
        Entry(
            name=name,
            version=version,
            state=ModelState.READY,
            model=replace(model, manifest=manifest(name, version), engine=down),
        )
        for name, version in (("echo", 3), ("other", 7))
    ]
    for entry in added:
        service.repository.add(entry)
    yield
    for entry in added:
        service.repository.remove(entry)


@pytest.mark.usefixtures("others")
async def test_versions_are_those_of_the_model(service: Service) -> None:
    asked = open_inference_pb2.ModelMetadataRequest(name="echo")
    metadata = await service.inference.ModelMetadata(asked)
    assert list(metadata.versions) == ["2", "3"]


@pytest.mark.usefixtures("others")
async def test_version_that_is_named_answers(service: Service) -> None:
    answer = await service.inference.ModelInfer(asking("a", version="2"))
    assert (answer.model_version, tensors(answer)["text"]) == ("2", ["a"])
    assert (await failure(service.inference.ModelInfer(asking("a")))).code() is Code.UNAVAILABLE


async def test_repository_is_listed(service: Service) -> None:
    asked = open_inference_pb2.RepositoryIndexRequest()
    listed = (await service.inference.RepositoryIndex(asked)).models
    found = [(model.name, model.version, model.state, model.reason) for model in listed]
    assert found == [
        ("echo", "1", "UNAVAILABLE", "weights.bin: damaged"),
        ("echo", "2", "READY", ""),
        ("ruin", "1", "UNAVAILABLE", "manifest.json: damaged"),
    ]
    ready = open_inference_pb2.RepositoryIndexRequest(ready=True)
    listed = (await service.inference.RepositoryIndex(ready)).models
    assert [(model.name, model.version) for model in listed] == [("echo", "2")]


async def test_every_version_of_a_model_is_unloaded(service: Service) -> None:
    unload = open_inference_pb2.RepositoryModelUnloadRequest(model_name="echo")
    # What tritonclient always sends.
    unload.parameters["unload_dependents"].bool_param = False
    await service.inference.RepositoryModelUnload(unload)
    ready = open_inference_pb2.ModelReadyRequest(name="echo")
    assert not (await service.inference.ModelReady(ready)).ready


async def test_versions_that_are_not_ready_are_unloaded_too(service: Service) -> None:
    """None of them may come to take the place of one that goes."""
    older = Entry(name="echo", version=1, files="whole")
    ready = service.repository.find("echo", 2)
    newer = Entry(name="echo", version=3, state=ModelState.LOADING)
    service.repository.add(older)
    service.repository.add(newer)
    service.rollout._keep = 1
    may_load = asyncio.Event()

    async def load() -> None:
        await may_load.wait()
        newer.fail("its graph is broken")

    service.rollout._spawn(newer, load())
    unload = open_inference_pb2.RepositoryModelUnloadRequest(model_name="echo")
    call = asyncio.ensure_future(_awaited(service.inference.RepositoryModelUnload(unload)))
    try:
        await until(lambda: ready.state is ModelState.AVAILABLE)
        assert older.state is ModelState.AVAILABLE
        assert {entry.control for entry in (older, ready, newer)} == {Control.UNLOADED}
        # Who is told that it is unloaded must not see it come.
        assert not call.done()
    finally:
        may_load.set()
    await call


async def test_load_from_a_folder_that_cannot_be_read(service: Service) -> None:
    load = open_inference_pb2.RepositoryModelLoadRequest(model_name="echo")
    error = await failure(service.inference.RepositoryModelLoad(load))
    assert error.code() is Code.UNAVAILABLE
    assert "cannot be read" in (error.details() or "")


async def test_load_takes_no_files_from_the_network(service: Service) -> None:
    load = open_inference_pb2.RepositoryModelLoadRequest(model_name="echo")
    load.parameters["file:1/model.onnx"].bytes_param = b"anything"
    error = await failure(service.inference.RepositoryModelLoad(load))
    assert error.code() is Code.INVALID_ARGUMENT
    assert (error.details() or "").startswith("parameters: must be empty")


async def test_unload_of_a_model_that_is_not_there(service: Service) -> None:
    unload = open_inference_pb2.RepositoryModelUnloadRequest(model_name="nobody")
    error = await failure(service.inference.RepositoryModelUnload(unload))
    assert error.code() is Code.NOT_FOUND


@pytest.mark.parametrize("raw", [False, True])
async def test_texts_are_answered_in_order(service: Service, raw: bool) -> None:
    # More than there are slots, and more than fit the queue.
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


async def test_answer_has_the_shape_of_the_question(service: Service) -> None:
    flat = await service.inference.ModelInfer(asking("a", "b"))
    assert {tuple(output.shape) for output in flat.outputs} == {(2,)}
    deep = await service.inference.ModelInfer(asking("a", "b", shape=[2, 1]))
    assert {tuple(output.shape) for output in deep.outputs} == {(2, 1)}


async def test_only_what_is_wanted_comes(service: Service) -> None:
    answer = await service.inference.ModelInfer(asking("a", outputs=["stop_reason", "text"]))
    assert [output.name for output in answer.outputs] == ["stop_reason", "text"]


@pytest.fixture
def submitted(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that the engine is sent."""
    requests: list[Request] = []

    def submit(request: Request) -> None:
        requests.append(request)
        answer = Finished([Hypothesis([5], -1.0, StopReason.EOS)])
        asyncio.get_running_loop().call_soon(request.receive, answer)

    monkeypatch.setattr(service.remote, "submit", submit)
    return requests


async def test_hypotheses_stand_side_by_side(service: Service, submitted: list[Request]) -> None:
    asked = asking("a", "b", beam_size=4, num_hypotheses=3)
    found = tensors(await service.inference.ModelInfer(asked))
    # The engine that is stood in for finds only one.
    assert found["stop_reason"] == [["EOS", "", ""]] * 2
    assert found["score"] == [[-1.0, -math.inf, -math.inf]] * 2


async def test_parameters_are_options(service: Service, submitted: list[Request]) -> None:
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
async def test_scores_are_computed_where_wanted(
    service: Service, submitted: list[Request], outputs: list[str], scored: bool
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
async def test_what_is_wrong_is_named(service: Service, asked: Any, field: str) -> None:
    error = await failure(service.inference.ModelInfer(asked))
    assert error.code() is Code.INVALID_ARGUMENT
    assert (error.details() or "").startswith(f"{field}: ")
    assert details(error, BadRequest).field_violations[0].field == field
    assert trailers(error)["x-request-id"]
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)


async def test_wrong_version_is_named_everywhere(service: Service) -> None:
    for call, kind in (
        (service.inference.ModelReady, open_inference_pb2.ModelReadyRequest),
        (service.inference.ModelMetadata, open_inference_pb2.ModelMetadataRequest),
        (service.inference.ModelConfig, open_inference_pb2.ModelConfigRequest),
    ):
        error = await failure(call(kind(name="echo", version="1.0")))
        assert error.code() is Code.INVALID_ARGUMENT
        assert details(error, BadRequest).field_violations[0].field == "version"


async def test_there_is_one_repository(service: Service) -> None:
    asked = open_inference_pb2.RepositoryIndexRequest(repository_name="second")
    error = await failure(service.inference.RepositoryIndex(asked))
    assert error.code() is Code.INVALID_ARGUMENT


async def test_unknown_model(service: Service) -> None:
    error = await failure(service.inference.ModelInfer(asking("a", model="nothing")))
    assert error.code() is Code.NOT_FOUND
    assert "echo/2" in (error.details() or "")
    error = await failure(service.inference.ModelInfer(asking("a", version="3")))
    assert error.code() is Code.NOT_FOUND


async def test_model_that_could_not_be_loaded(service: Service) -> None:
    error = await failure(service.inference.ModelInfer(asking("a", version="1")))
    assert error.code() is Code.FAILED_PRECONDITION


async def test_message_that_cannot_be_read(service: Service) -> None:
    call = service.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    error = await failure(call(bytes([1 << 3 | 2, 1, 0xFF])))
    assert error.code() is Code.INVALID_ARGUMENT
    assert details(error, BadRequest).field_violations[0].field == "request"


async def test_one_text_that_fails_ends_the_others(service: Service) -> None:
    service.runtime.step_s = 0.02
    error = await failure(service.inference.ModelInfer(asking("a" * 40, "b" * 40, "")))
    assert error.code() is Code.INVALID_ARGUMENT
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)
    assert await service.value("stop_total", model="echo", reason="eos") == 0


async def test_fault_is_told_by_its_id_alone(service: Service) -> None:
    service.runtime.fault = ZeroDivisionError("secret")
    error = await failure(service.inference.ModelInfer(asking("a")))
    assert error.code() is Code.INTERNAL
    assert trailers(error)["x-request-id"] in (error.details() or "")
    assert "secret" not in (error.details() or "")


async def test_deadline_frees_the_slots(service: Service) -> None:
    service.runtime.step_s = 0.02
    error = await failure(service.inference.ModelInfer(asking(*["a" * 48] * 6), timeout=0.3))
    assert error.code() is Code.DEADLINE_EXCEEDED
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)
    labels = {"method": INFER, "code": "DEADLINE_EXCEEDED", "model": "echo"}
    await service.until_value(1, "requests_total", **labels)


async def test_cancel_frees_the_slots(service: Service) -> None:
    service.runtime.step_s = 0.02
    call = service.inference.ModelInfer(asking(*["a" * 48] * 6))
    await until(lambda: service.engine.slots_in_use == 4)
    call.cancel()
    await until(lambda: service.engine.slots_in_use == service.engine.queue_depth == 0)
    labels = {"method": INFER, "code": "CANCELLED", "model": "echo"}
    await service.until_value(1, "requests_total", **labels)


async def test_full_queue_says_when_to_come_back() -> None:
    async with serving(slots=1, max_queue=1) as service:
        service.runtime.may_run.clear()
        tasks = [asyncio.ensure_future(_awaited(service.inference.ModelInfer(asking("a"))))]
        await until(lambda: service.engine.slots_in_use == 1)
        tasks.append(asyncio.ensure_future(_awaited(service.inference.ModelInfer(asking("b")))))
        await until(lambda: service.engine.queue_depth == 1)
        error = await failure(service.inference.ModelInfer(asking("c")))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
        service.runtime.may_run.set()
        assert [tensors(await task)["text"] for task in tasks] == [["a"], ["b"]]


async def test_one_of_many_texts_waits_until_there_is_room() -> None:
    async with serving(slots=2, max_queue=1) as service:
        service.runtime.may_run.clear()
        # Two may be under way at once; the queue has room for one.
        others = [asyncio.ensure_future(_awaited(service.inference.ModelInfer(asking("a"))))]
        await until(lambda: service.engine.slots_in_use == 1)
        others.append(asyncio.ensure_future(_awaited(service.inference.ModelInfer(asking("b")))))
        await until(lambda: service.engine.queue_depth == 1)
        many = asyncio.ensure_future(_awaited(service.inference.ModelInfer(asking("c", "d", "e"))))
        await asyncio.sleep(0.05)
        service.runtime.may_run.set()
        assert tensors(await many)["text"] == ["c", "d", "e"]
        await asyncio.gather(*others)


async def test_time_limit() -> None:
    async with serving(slots=1) as service:
        service.runtime.step_s = 0.02
        answer = tensors(await service.inference.ModelInfer(asking("a" * 48, time_limit_ms=100)))
        assert answer["stop_reason"] == ["TIME_LIMIT"]
        [text] = answer["text"]
        assert text < "a" * 48


async def _awaited(call: Any) -> Any:
    return await call


async def test_line_in_the_log(service: Service, caplog: pytest.LogCaptureFixture) -> None:
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
        "sources": 2,
        "source_tokens": tokens + 2,
        "generated_tokens": tokens,
    }
    assert "secret" not in caplog.text + str(line)
    labels = {"method": INFER, "code": "OK", "model": "echo"}
    assert await service.value("requests_total", **labels) == 1


# ---- many requests in one call


async def answers(service: Service, *requests: Any) -> list[Any]:
    call = service.inference.ModelStreamInfer(iter(requests))
    return [answer async for answer in call]


def is_last(answer: Any) -> bool:
    return bool(answer.infer_response.parameters["triton_final_response"].bool_param)


@pytest.mark.parametrize("raw", [False, True])
async def test_each_request_of_a_stream_has_its_answer(service: Service, raw: bool) -> None:
    asked = [asking(f"text {number}", "b", id=str(number), raw=raw) for number in range(5)]
    found = await answers(service, *asked)
    assert [answer.infer_response.id for answer in found] == list("01234")
    for number, answer in enumerate(found):
        assert is_last(answer) and not answer.error_message
        assert tensors(answer.infer_response)["text"] == [f"text {number}", "b"]
        assert bool(answer.infer_response.raw_output_contents) is raw


async def test_request_of_a_stream_that_fails_has_its_message(service: Service) -> None:
    found = await answers(
        service,
        asking("a", id="1"),
        asking("", id="2"),
        asking("", id="3", stream=True),
        asking("a", id="4", model="nothing"),
        asking("b", id="5"),
    )
    assert [answer.infer_response.id for answer in found] == list("12345")
    # Who counts these must not wait for one that failed.
    assert all(map(is_last, found))
    messages = [answer.error_message for answer in found]
    assert messages[0] == messages[4] == ""
    assert messages[1] == messages[2] == "inputs.text[0]: is empty"
    assert "no model 'nothing'" in messages[3]


@pytest.mark.parametrize("raw", [False, True])
async def test_pieces_join_to_the_text(service: Service, raw: bool) -> None:
    service.runtime.step_s = 0.002
    found = await answers(service, asking(TEXT, id="1", raw=raw, stream=True))
    assert len(found) > 3
    assert [is_last(answer) for answer in found] == [False] * (len(found) - 1) + [True]
    assert {answer.infer_response.id for answer in found} == {"1"}
    *pieces, last = [tensors(answer.infer_response) for answer in found]
    assert "".join(piece.pop("text")[0] for piece in pieces) == TEXT
    assert not any(pieces), "what is known at the end only"
    [whole] = [tensors(answer.infer_response) for answer in await answers(service, asking(TEXT))]
    assert last == whole | {"text": [""]}


async def test_pieces_come_while_the_rest_is_decoded(service: Service) -> None:
    service.runtime.step_s = 0.02
    call = service.inference.ModelStreamInfer(iter([asking("abcdefgh", stream=True)]))
    assert tensors((await call.read()).infer_response)["text"][0]
    assert service.engine.slots_in_use == 1
    call.cancel()
    await until(lambda: service.engine.slots_in_use == 0)
    labels = {"method": STREAM, "code": "CANCELLED", "model": "echo"}
    await service.until_value(1, "requests_total", **labels)


@pytest.mark.parametrize(
    "asked",
    [
        asking("a", "b", stream=True),
        asking("a", temperature=1.0, num_hypotheses=2, stream=True),
        asking("a", stream="yes"),
    ],
)
async def test_pieces_are_of_one_text(service: Service, asked: Any) -> None:
    [answer] = await answers(service, asked)
    assert answer.error_message.startswith("parameters.stream: is ")
    assert is_last(answer)


async def test_message_of_a_stream_that_cannot_be_read(service: Service) -> None:
    call = service.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    error = await failure(call(iter([asking("a").SerializeToString(), b"\xff"])))
    assert error.code() is Code.INVALID_ARGUMENT
    assert details(error, BadRequest).field_violations[0].field == "request"


async def test_stream_is_counted_once(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await answers(
        service, asking("ab", "c"), asking("ab", stream=True), asking("ab", model="x"), asking("a")
    )
    [line] = [record.fields for record in caplog.records if hasattr(record, "fields")]
    del line["ms"], line["id"]
    assert line == {
        "method": STREAM,
        "code": "OK",
        "model": "echo",
        "sources": 4,
        "source_tokens": 6 + 4,
        "generated_tokens": 6,
    }


async def test_time_of_each_request_begins_when_it_comes(
    service: Service, submitted: list[Request]
) -> None:
    await answers(service, asking("a"), asking("a", stream=True), asking("a"))
    arrived_s = [sent.timeline.arrived_s for sent in submitted]
    assert arrived_s == sorted(set(arrived_s))


class Open:
    """Requests of a caller who sends some and keeps the stream open."""

    def __init__(self, *requests: Any) -> None:
        self._requests = requests
        self.end = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for request_ in self._requests:
            yield request_
        await self.end.wait()


async def test_stream_that_is_left_open_does_not_hold_the_drain() -> None:
    async with serving() as service:
        service.runtime.may_run.clear()
        idle = service.inference.ModelStreamInfer(Open(asking("a", model="x")))
        assert (await idle.read()).error_message
        busy = service.inference.ModelStreamInfer(Open(asking("b")))
        await until(lambda: service.engine.slots_in_use == 1)
        drained = asyncio.ensure_future(service.server.drain(3600))
        error = await failure(idle.read())
        assert error.code() is Code.UNAVAILABLE
        assert details(error, RetryInfo) is not None
        ready = await service.inference.ServerReady(open_inference_pb2.ServerReadyRequest())
        assert not ready.ready
        service.runtime.may_run.set()
        # What was under way is answered first.
        assert tensors((await busy.read()).infer_response)["text"] == ["b"]
        assert (await failure(busy.read())).code() is Code.UNAVAILABLE
        assert await asyncio.wait_for(drained, PATIENCE_S)


async def test_stream_that_is_cancelled_between_requests_leaves_nothing(service: Service) -> None:
    tasks = len(asyncio.all_tasks())
    call = service.inference.ModelStreamInfer(Open(asking("a")))
    await call.read()
    call.cancel()
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert service.engine.slots_in_use == 0


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
