import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from tests.support.logged import fields_of
from tests.unit.server.front.calls import details, failure, invalid, line_of
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.service import Service, serving, until
from tests.unit.server.open_inference.tensor import asking, tensors

from seqserve.open_inference import open_inference_pb2
from seqserve_server.contract.request import GenerateSpec

Code = grpc.StatusCode
TEXT = "Grüße aus Köln 🙂"
STREAM = "GRPCInferenceService.ModelStreamInfer"


async def answers(service: Service, *requests: Any) -> list[Any]:
    call = service.inference.ModelStreamInfer(iter(requests))
    return [answer async for answer in call]


def is_last(answer: Any) -> bool:
    return bool(answer.infer_response.parameters["triton_final_response"].bool_param)


@pytest.mark.parametrize("raw", [False, True])
async def test_each_request_of_a_stream_has_its_response(service: Service, raw: bool) -> None:
    asked = [asking(f"text {number}", "b", id=str(number), raw=raw) for number in range(5)]
    found = await answers(service, *asked)
    assert [answer.infer_response.id for answer in found] == list("01234")
    for number, answer in enumerate(found):
        assert is_last(answer) and not answer.error_message
        assert tensors(answer.infer_response)["text"] == [f"text {number}", "b"]
        assert bool(answer.infer_response.raw_output_contents) is raw


async def test_failed_request_of_a_stream_is_answered_with_its_message(service: Service) -> None:
    found = await answers(
        service,
        asking("a", id="1"),
        asking("", id="2"),
        asking("", id="3", stream=True),
        asking("a", id="4", model="nothing"),
        asking("b", id="5"),
    )
    assert [answer.infer_response.id for answer in found] == list("12345")
    # A client that counts last responses must get one for a failed request too.
    assert all(map(is_last, found))
    messages = [answer.error_message for answer in found]
    assert messages[0] == messages[4] == ""
    assert messages[1] == messages[2] == "inputs.text[0]: is empty"
    assert "no model 'nothing'" in messages[3]


@pytest.mark.parametrize("raw", [False, True])
async def test_pieces_join_to_the_text(service: Service, raw: bool) -> None:
    # Tokens that come while no piece is read come in one.
    service.runtime.hold_after(4)
    found = []
    asked = asking(TEXT, id="1", raw=raw, stream=True)
    async for answer in service.inference.ModelStreamInfer([asked]):
        found.append(answer)
        service.runtime.allow(4)
    service.runtime.go_on()
    assert len(found) > 3
    assert [is_last(answer) for answer in found] == [False] * (len(found) - 1) + [True]
    assert {answer.infer_response.id for answer in found} == {"1"}
    *pieces, last = [tensors(answer.infer_response) for answer in found]
    assert "".join(piece.pop("text")[0] for piece in pieces) == TEXT
    assert not any(pieces), "the other outputs come last"
    [whole] = [tensors(answer.infer_response) for answer in await answers(service, asking(TEXT))]
    assert last == whole | {"text": [""]}


async def test_pieces_arrive_while_decoding_goes_on(service: Service) -> None:
    service.runtime.hold_after(2)
    call = service.inference.ModelStreamInfer(iter([asking("abcdefgh", stream=True)]))
    assert tensors((await call.read()).infer_response)["text"][0]
    assert service.engine.slots_in_use == 1
    call.cancel()
    labels = {"method": STREAM, "code": "CANCELLED", "model": "echo"}
    await service.until_value(1, "requests_total", **labels)
    service.runtime.go_on()
    await until(lambda: service.engine.slots_in_use == 0)


@pytest.mark.parametrize(
    "asked",
    [
        asking("a", "b", stream=True),
        asking("a", temperature=1.0, num_hypotheses=2, stream=True),
        asking("a", stream="yes"),
    ],
)
async def test_stream_parameter_takes_one_text_and_hypothesis(service: Service, asked: Any) -> None:
    [answer] = await answers(service, asked)
    assert answer.error_message.startswith("parameters.stream: is ")
    assert is_last(answer)


async def test_malformed_message_ends_the_stream(service: Service) -> None:
    call = service.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    sent = [asking("a").SerializeToString(), b"\xff"]
    assert (await invalid(call(iter(sent))))[0] == "request"


async def test_stream_is_one_log_line(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await answers(
        service, asking("ab", "c"), asking("ab", stream=True), asking("ab", model="x"), asking("a")
    )
    [line] = fields_of(caplog)
    del line["ms"], line["id"]
    assert line == line_of(STREAM, sources=4, source_tokens=6 + 4, generated_tokens=6)


async def test_each_request_of_a_stream_arrives_at_its_own_time(
    service: Service, submitted: list[GenerateSpec]
) -> None:
    await answers(service, asking("a"), asking("a", stream=True), asking("a"))
    arrived_s = [sent.arrived_s for sent in submitted]
    assert arrived_s == sorted(set(arrived_s))


class Open:
    """A client that sends some requests and keeps the stream open."""

    def __init__(self, *requests: Any) -> None:
        self._requests = requests
        self.end = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for request_ in self._requests:
            yield request_
        await self.end.wait()


async def test_open_stream_does_not_delay_the_drain() -> None:
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
        # The running request is answered first.
        assert tensors((await busy.read()).infer_response)["text"] == ["b"]
        assert (await failure(busy.read())).code() is Code.UNAVAILABLE
        assert await asyncio.wait_for(drained, PATIENCE_S)


async def test_stream_cancelled_between_requests_leaks_no_task(service: Service) -> None:
    tasks = len(asyncio.all_tasks())
    call = service.inference.ModelStreamInfer(Open(asking("a")))
    await call.read()
    call.cancel()
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert service.engine.slots_in_use == 0
