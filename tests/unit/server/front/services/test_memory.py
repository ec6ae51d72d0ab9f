import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from tests.unit.server.front.calls import batch, bulk, failure, invalid, request
from tests.unit.server.front.service import Service, serving
from tests.unit.server.front.services.open_inference.tensor import asking

from seqserve.v1 import generation_pb2

BATCH = batch(*["abc"] * 80)
SCORE = generation_pb2.ScoreRequest(source="abc", target="ab")


@pytest.fixture
async def small() -> AsyncIterator[Service]:
    """A server with memory for the answer of one batch at a time."""
    async with serving(max_answer_mb=2) as service:
        yield service


async def read(call: Any) -> None:
    async for _ in call:
        pass


CALLS: dict[str, Callable[[Service], Any]] = {
    "Generate": lambda service: service.generate("abc"),
    "GenerateStream": lambda service: read(service.generation.GenerateStream(request("abc"))),
    "GenerateBatch": lambda service: service.generation.GenerateBatch(BATCH),
    "GenerateBulk": lambda service: read(
        service.generation.GenerateBulk([bulk(id_, "abc") for id_ in range(9)])
    ),
    "Score": lambda service: service.generation.Score(SCORE),
    "ModelInfer": lambda service: service.inference.ModelInfer(asking("abc", "de")),
    "ModelStreamInfer": lambda service: read(
        service.inference.ModelStreamInfer([asking("abc"), asking("de")])
    ),
}


async def until_reserved(service: Service) -> None:
    async with asyncio.timeout(20.0):
        while not await service.value("answer_bytes"):
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("method", CALLS)
async def test_a_call_holds_memory_until_it_is_over(small: Service, method: str) -> None:
    small.runtime.may_run.clear()
    small.runtime.may_score.clear()
    call = asyncio.ensure_future(CALLS[method](small))
    await until_reserved(small)
    small.runtime.may_run.set()
    small.runtime.may_score.set()
    await call
    await small.until_value(0, "answer_bytes")


async def test_a_call_waits_for_memory_and_then_runs(small: Service) -> None:
    small.runtime.may_run.clear()
    calls = [asyncio.ensure_future(small.generation.GenerateBatch(BATCH)) for _ in range(3)]
    await small.until_value(2, "answers_waiting")
    calls[2].cancel()
    await small.until_value(1, "answers_waiting")
    small.runtime.may_run.set()
    for call in calls[:2]:
        assert len((await call).outcomes) == 80
    await small.until_value(0, "answer_bytes")
    assert await small.value("answers_waiting") == 0


async def test_a_call_that_waits_for_memory_keeps_its_deadline(small: Service) -> None:
    small.runtime.may_run.clear()
    first = asyncio.ensure_future(small.generation.GenerateBatch(BATCH))
    await until_reserved(small)
    error = await failure(small.generation.GenerateBatch(BATCH, timeout=0.1))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await small.until_value(0, "answers_waiting")
    small.runtime.may_run.set()
    await first


async def test_a_call_that_never_fits_is_refused(small: Service) -> None:
    many = ["abc"] * 1024
    _, reason = await invalid(small.generation.GenerateBatch(batch(*many)))
    assert "the answers to 1,024 sources" in reason
    field, _ = await invalid(small.inference.ModelInfer(asking(*many)))
    assert field.startswith("parameters.")
