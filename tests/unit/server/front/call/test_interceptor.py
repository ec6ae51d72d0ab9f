import asyncio
import gc
import logging

import grpc
import pytest
from tests.support.logged import fields_of
from tests.unit.server.front.calls import (
    awaited,
    batch,
    bulk,
    ended,
    failure,
    line_of,
    request,
    trailers,
)
from tests.unit.server.front.service import Service, busy, serving, until

from seqserve.v1 import generation_pb2, model_pb2
from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.front.overload.admission import PendingCalls

GENERATE = "GenerationService.Generate"
STREAM = "GenerationService.GenerateStream"
SECRET = "the words of a user"


def labels(method: str, code: str, model: str = "echo") -> dict[str, str]:
    return {"method": method, "code": code, "model": model}


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("mine-1", True), ("", False), ("x" * 65, False), ("two words", False), ('a"b', False)],
)
@pytest.mark.parametrize("source", ["a", ""], ids=["answered", "failed"])
async def test_reply_repeats_a_sound_request_id(
    service: Service, given: str, is_kept: bool, source: str
) -> None:
    call = service.generation.Generate(request(source), metadata=(("x-request-id", given),))
    await call.code()
    id_ = dict(await call.trailing_metadata())["x-request-id"]
    assert (id_ == given) is is_kept and 0 < len(id_) <= 64


async def test_every_reply_has_a_request_id_of_its_own(service: Service) -> None:
    generation, models = service.generation, service.models
    stream = generation.GenerateStream(request("a"))
    _ = [message async for message in stream]
    calls = [
        stream,
        generation.GenerateBatch(batch("a", "")),
        models.ListModels(model_pb2.ListModelsRequest()),
        models.GetModel(model_pb2.GetModelRequest()),
    ]
    ids = {dict(await call.trailing_metadata())["x-request-id"] for call in calls}
    failed = [
        generation.GenerateStream(request("")),
        generation.Score(generation_pb2.ScoreRequest()),
        generation.Attention(generation_pb2.AttentionRequest()),
        models.GetModel(model_pb2.GetModelRequest(model="none")),
        service.channel.unary_unary("/seqserve.v1.GenerationService/Generate")(b"\xff"),
    ]
    ids |= {trailers(await failure(call))["x-request-id"] for call in failed}
    assert len(ids) == len(calls) + len(failed)


async def test_log_line_of_an_answer(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await service.generation.Generate(request(SECRET), metadata=(("x-request-id", "mine-3"),))
    (line,) = fields_of(caplog)
    times = {name: line.pop(name) for name in ("ms", "queue_ms", "first_token_ms")}
    tokens = {"source_tokens": len(SECRET) + 1, "generated_tokens": len(SECRET)}
    assert line == line_of(GENERATE, id="mine-3", **tokens)
    assert 0 <= times["queue_ms"] <= times["first_token_ms"] <= times["ms"]


async def test_log_line_of_a_refused_call_has_reason_and_field(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await failure(service.generate("a", max_decoding_length=0))
    await failure(service.generate("a", model="made up"))
    wrong, unknown = fields_of(caplog)
    assert (wrong["reason"], wrong["field"]) == ("INVALID_FIELD", "options.max_decoding_length")
    assert unknown["reason"] == "MODEL_NOT_FOUND" and "field" not in unknown


async def test_fault_is_logged_by_id(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.runtime.fault = ZeroDivisionError("what really happened")
    error = await failure(service.generate("a"))
    id_ = trailers(error)["x-request-id"]
    assert id_ in (error.details() or "")
    logged = [record for record in caplog.records if id_ in record.getMessage()]
    # The engine logs the cause, the server the call.
    assert {record.name.rpartition(".")[2] for record in logged} == {"interceptor", "engine"}
    assert "what really happened" in caplog.text


async def test_deadline_in_the_queue_ends_the_call_and_is_counted() -> None:
    async with busy() as service:
        error = await failure(service.generation.Generate(request("a"), timeout=1))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        service.runtime.may_run.set()
        await service.until_value(1, "requests_total", **labels(GENERATE, "DEADLINE_EXCEEDED"))
        await service.until_value(1, "deadline_exceeded_total", model="echo", where="queue")
        assert await service.value("cancelled_total", model="echo") == 0
        assert service.engine.queue_depth == 0


@pytest.mark.parametrize("streamed", [False, True])
async def test_deadline_in_decode_frees_the_slot(service: Service, streamed: bool) -> None:
    service.runtime.hold_after(2)
    stub = service.generation.GenerateStream if streamed else service.generation.Generate
    error = await failure(stub(request("a" * 48), timeout=1))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    method = STREAM if streamed else GENERATE
    await service.until_value(1, "requests_total", **labels(method, "DEADLINE_EXCEEDED"))
    service.runtime.go_on()
    late = {"model": "echo", "where": "decode"}
    await service.until_value(1, "deadline_exceeded_total", **late)
    await until(lambda: service.engine.slots_in_use == 0)
    assert await service.value("cancelled_total", model="echo") == 0
    assert await service.value("stop_total", model="echo", reason="eos") == 0


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancel_frees_the_slot(service: Service, streamed: bool) -> None:
    service.runtime.hold_after(2)
    stub = service.generation.GenerateStream if streamed else service.generation.Generate
    call = stub(request("a" * 48))
    task = asyncio.ensure_future(call.read() if streamed else awaited(call))
    await until(lambda: service.engine.slots_in_use == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        while True:
            await task
            task = asyncio.ensure_future(call.read())
    method = STREAM if streamed else GENERATE
    await service.until_value(1, "requests_total", **labels(method, "CANCELLED"))
    service.runtime.go_on()
    await until(lambda: service.engine.slots_in_use == 0)
    await service.until_value(1, "cancelled_total", model="echo")
    assert await service.value("stop_total", model="echo", reason="eos") == 0


async def test_cancel_in_the_queue_leaves_the_queue() -> None:
    async with busy() as service:
        call = service.generation.Generate(request("second"))
        second = asyncio.ensure_future(awaited(call))
        await until(lambda: service.engine.queue_depth == 1)
        call.cancel()
        await until(lambda: service.engine.queue_depth == 0)
        with pytest.raises(asyncio.CancelledError):
            await second
        service.runtime.may_run.set()
        await service.until_value(1, "cancelled_total", model="echo")


async def test_calls_are_counted_and_timed(service: Service) -> None:
    await service.generate("a")
    await failure(service.generation.Generate(request("")))
    await failure(service.generate("a", model="made up"))
    await service.until_value(1, "requests_total", **labels(GENERATE, "OK"))
    await service.until_value(1, "requests_total", **labels(GENERATE, "INVALID_ARGUMENT"))
    # A name that a client makes up must not become a label.
    await service.until_value(1, "requests_total", **labels(GENERATE, "NOT_FOUND", model=""))
    count = await service.value("request_duration_seconds_count", method=GENERATE, model="echo")
    assert count == 2
    # Series of a version are those of its calls alone.
    await service.until_value(2, "requests_total", model="echo", version="2")
    await service.until_value(1, "requests_total", model="", version="")


async def test_refused_sources_within_a_call_are_counted(service: Service) -> None:
    response = await service.generation.GenerateBatch(batch("a", "", "b" * 99, "c"))
    assert [one.HasField("failure") for one in response.outcomes] == [False, True, True, False]
    await service.until_value(2, "rejected_total", model="echo", reason="invalid")
    asked = [("", ""), ("a", ""), ("a", "made up")]
    requests = [bulk(id_, source, model=model) for id_, (source, model) in enumerate(asked)]
    assert len(await ended(service.generation.GenerateBulk(requests))) == 3
    await service.until_value(3, "rejected_total", model="echo", reason="invalid")
    assert await service.value("rejected_total", model="", reason="invalid") == 0


async def test_unknown_methods_are_not_counted(service: Service) -> None:
    call = service.channel.unary_unary("/seqserve.v1.GenerationService/Nothing")
    error = await failure(call(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert (await service.scraped())["seqserve_requests"] == set()


def errors_of_ended_calls() -> int:
    """Counts errors that ended a call and are still there; they hold all that it held."""
    return sum(type(each) is grpc.aio.AbortError for each in gc.get_objects())


@pytest.mark.parametrize("on_arrival", [False, True])
async def test_a_failed_call_is_freed_at_once(
    monkeypatch: pytest.MonkeyPatch, on_arrival: bool
) -> None:
    def enter(pending: PendingCalls, caller: str) -> None:
        raise QueueFull("no place", 0.25, Bound.BACKLOG)

    async with serving() as service:
        # gRPC keeps the first call of a method that is not admitted.
        await service.models.ListModels(model_pb2.ListModelsRequest())
        if on_arrival:
            monkeypatch.setattr(PendingCalls, "enter", enter)
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await failure(service.generate(""))
                await failure(service.models.GetModel(model_pb2.GetModelRequest(model="no")))
            assert errors_of_ended_calls() <= 1
        finally:
            gc.enable()
