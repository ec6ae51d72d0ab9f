import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from tests.unit.server.front.calls import batch, bulk, failure, invalid, request, trailers
from tests.unit.server.front.service import Service, serving, until
from tests.unit.server.open_inference.tensor import asking

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


LONG = {
    "quotation marks": "«" * 60_000,
    "dialogue": "「はい。」" * 12_000,
    "accents": "e\u0301" * 30_000,
    "sentences": "It rains. " * 6_000,
    "white space": " \n" * 30_000 + "a",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
async def test_a_short_call_is_answered_while_a_text_is_read(service: Service, text: str) -> None:
    """The long call is not even read to its end before the short one has its answer."""
    reading = asyncio.ensure_future(service.generate(text, segmentation="sentences"))
    memory = service.server._interceptor._resources.texts.memory
    await until(lambda: memory.reserved_bytes > 0)
    answer = await service.generate("abc")
    assert answer.hypotheses[0].text == "abc"
    if not text.startswith(" "):
        assert memory.reserved_bytes > 0
    reading.cancel()
    await until(lambda: memory.reserved_bytes == 0)


async def test_texts_of_a_caller_wait_for_each_other_and_those_of_others_do_not() -> None:
    async with serving(caller_metadata="x-caller") as service:
        memory = service.server._interceptor._resources.texts.memory
        long = request("«" * 400_000, segmentation="sentences")

        def call(caller: str, message: Any) -> Any:
            metadata = (("x-caller", caller),)
            return asyncio.ensure_future(service.generation.Generate(message, metadata=metadata))

        calls = [call("busy", long) for _ in range(4)]
        await until(lambda: memory.num_waiting == 2)
        held_bytes = memory.reserved_bytes
        calls.append(call("other", long))
        await until(lambda: memory.reserved_bytes > held_bytes)
        assert memory.num_waiting == 2
        for unfinished in calls:
            unfinished.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: memory.reserved_bytes == memory.num_waiting == 0)


@pytest.mark.parametrize("segmentation", ["none", "sentences"])
async def test_a_panic_of_the_tokenizer_fails_its_call_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch, segmentation: str
) -> None:
    class Panic(BaseException):
        """As the library's own, which is no Exception."""

    [model] = service.repository.models()
    encode = model.tokenizer.encode

    def panicking(text: str) -> list[int]:
        if "panic" in text:
            raise Panic
        return encode(text)

    monkeypatch.setattr(model.tokenizer, "encode", panicking)
    for text in ("panic", "panic. " * 1000):
        error = await failure(service.generate(text, segmentation="sentences"))
        assert error.code() is grpc.StatusCode.INTERNAL
        assert trailers(error)["x-request-id"] in (error.details() or "")
    answer = await service.generate("abc", segmentation=segmentation)
    assert answer.hypotheses[0].text == "abc"
    error = await failure(service.generation.GenerateBatch(batch("abc", "panic")))
    assert error.code() is grpc.StatusCode.INTERNAL
