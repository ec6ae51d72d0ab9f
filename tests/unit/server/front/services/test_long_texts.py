import asyncio
from typing import Any

import grpc
import pytest
from tests.unit.server.front.calls import batch, failure, request, trailers
from tests.unit.server.front.service import Service, serving, until

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
