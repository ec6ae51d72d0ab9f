"""Errors as a client sees them: status, message and attached details."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from tests.unit.server.front.service import Service, details, failure, request, serving, until

from seqserve.v1 import generation_pb2
from seqserve_server.contract import errors
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.engine_client.refusals import RefusalCache
from seqserve_server.front.telemetry.outcomes import failure_of

Code = grpc.StatusCode


def test_long_message_is_truncated() -> None:
    # Clients limit headers and refuse a reply whose headers are larger.
    failure = failure_of(errors.ModelNotFound("x" * 100_000), "id")
    sent = len(failure.message) + sum(len(value) for _, value in failure.trailers)
    assert sent < 4096


@pytest.mark.parametrize("error", [errors.EngineFault("secret"), ZeroDivisionError("secret")])
def test_fault_reveals_only_the_request_id(error: Exception) -> None:
    failure = failure_of(error, "id-of-the-log")
    assert failure.outcome.code is Code.INTERNAL
    assert "id-of-the-log" in failure.message
    assert b"secret" not in failure.trailers[0][1] and "secret" not in failure.message
    assert Status.FromString(failure.trailers[0][1]).message == failure.message


async def test_bad_field_is_named_in_the_details(service: Service) -> None:
    error = await failure(service.generation.Generate(request(" \n ")))
    assert error.code() is Code.INVALID_ARGUMENT
    (violation,) = details(error, BadRequest).field_violations
    assert violation.field == "source" and violation.description
    assert details(error, ErrorInfo).reason == "INVALID_FIELD"
    assert await service.value("rejected_total", reason="invalid", model="echo") == 1


async def test_unknown_model_is_not_found_and_lists_models(service: Service) -> None:
    error = await failure(service.generation.Generate(request("a", model="x" * 5000)))
    assert error.code() is Code.NOT_FOUND
    assert "echo/2" in (error.details() or "") and len(error.details() or "") < 300
    assert details(error, ErrorInfo).reason == "MODEL_NOT_FOUND"


async def test_failed_model_gives_no_retry_time(service: Service) -> None:
    error = await failure(service.generation.Generate(request("a", model="echo", version=1)))
    # Not UNAVAILABLE, after which clients retry.
    assert error.code() is Code.FAILED_PRECONDITION
    assert details(error, RetryInfo) is None
    assert details(error, ErrorInfo).reason == "MODEL_NOT_LOADED"


async def test_model_without_a_scorer_cannot_score(service: Service) -> None:
    service.runtime.can_score = False
    error = await failure(
        service.generation.Score(generation_pb2.ScoreRequest(source="a", target="b"))
    )
    assert error.code() is Code.FAILED_PRECONDITION
    assert "echo/2 has no scorer.onnx" in (error.details() or "")
    assert details(error, ErrorInfo).reason == "NO_SCORER"


async def test_full_queue_gives_a_retry_time() -> None:
    async with serving(slots=1, max_queue=1) as service:
        service.runtime.may_run.clear()
        running = service.generation.Generate(request("a"))
        running_too = asyncio.ensure_future(running)
        await until(lambda: service.engine.slots_in_use == 1)
        waiting = asyncio.ensure_future(service.generation.Generate(request("b")))
        await until(lambda: service.engine.queue_depth == 1)
        error = await failure(service.generation.Generate(request("c")))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
        assert details(error, ErrorInfo).reason == "QUEUE_FULL"
        assert await service.value("rejected_total", reason="queue_full", model="echo") == 1
        service.runtime.may_run.set()
        answers = await asyncio.gather(running_too, waiting)
        assert [answer.hypotheses[0].text for answer in answers] == ["a", "b"]


async def test_refused_client_is_refused_again_without_asking_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A clock that stands still.
    refusals = RefusalCache(lambda: 0.0)
    async with serving(slots=1, max_queue=1, refusals=refusals) as service:
        service.runtime.may_run.clear()
        running = asyncio.ensure_future(service.generation.Generate(request("a")))
        await until(lambda: service.engine.slots_in_use == 1)
        waiting = asyncio.ensure_future(service.generation.Generate(request("b")))
        await until(lambda: service.engine.queue_depth == 1)
        await failure(service.generation.Generate(request("c")))
        with monkeypatch.context() as patch:
            patch.delattr(EngineGroup, "submit")
            for call in (service.generation.Generate, service.generation.GenerateStream):
                error = await failure(call(request("d")))
                assert error.code() is Code.RESOURCE_EXHAUSTED
                assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
        assert await service.value("rejected_total", reason="queue_full", model="echo") == 3
        service.runtime.may_run.set()
        await asyncio.gather(running, waiting)


async def test_draining_engine_gives_a_retry_time(service: Service) -> None:
    service.remote.close()
    error = await failure(service.generation.Generate(request("a")))
    assert error.code() is Code.UNAVAILABLE
    assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
    assert details(error, ErrorInfo).reason == "DRAINING"
    assert await service.value("rejected_total", reason="draining", model="echo") == 1


async def test_fault_in_a_step_ends_the_call_and_not_the_engine(service: Service) -> None:
    service.runtime.fault = ZeroDivisionError("secret")
    error = await failure(service.generation.GenerateStream(request("a")))
    assert error.code() is Code.INTERNAL
    assert "secret" not in (error.details() or "")
    assert details(error, ErrorInfo).reason == "FAULT"
    service.runtime.fault = None
    answer = await service.generation.Generate(request("a"))
    assert answer.hypotheses[0].text == "a"


async def test_message_over_the_limit_is_refused() -> None:
    async with serving(max_message_bytes=2048) as service:
        error = await failure(service.generation.Generate(request("a" * 4096)))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert "larger than max" in (error.details() or "")
