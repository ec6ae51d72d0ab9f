import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tests.unit.server.front.calls import awaited, batch, bulk, ended, failure, request, texts
from tests.unit.server.front.service import Service, serving, until
from tests.unit.server.open_inference.tensor import asking, tensors

from seqserve.v1 import generation_pb2
from seqserve_server.contract.limits import CacheScope

TEXT = "Grüße aus Köln 🙂"
SENTENCES = "Good day. How are you? Good day."


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving(cache_bytes=1_000_000) as service:
        yield service


def without_timings(response: Any) -> Any:
    response.ClearField("timings")
    return response


async def lookups(service: Service) -> tuple[float, ...]:
    results = ("hit", "joined", "miss")
    return tuple(
        [await service.value("answer_cache_lookups_total", result=each) for each in results]
    )


async def computed(service: Service) -> float:
    """Requests that the engine has begun."""
    return await service.value("queue_duration_seconds_count")


OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam_size": 3, "num_hypotheses": 2},
    {"return_token_scores": True, "return_top_tokens": 2},
    {"stop_sequences": ["Köln"]},
    {"max_decoding_length": 5},
    {"top_k": 3, "seed": 7},
    {"time_limit_ms": 60_000},
]


async def streamed(service: Service, **options: Any) -> tuple[str, list[int], Any]:
    call = service.generation.GenerateStream(request(TEXT, **options))
    *pieces, last = [message async for message in call]
    ids = [id_ for message in pieces for id_ in message.piece.token_ids]
    return "".join(message.piece.text for message in pieces), ids, without_timings(last.result)


@pytest.mark.parametrize("options", OPTIONS)
async def test_equal_questions_have_one_answer(service: Service, options: dict[str, Any]) -> None:
    first = await streamed(service, **options)
    assert await streamed(service, **options) == first
    whole = await service.generate(TEXT, **options)
    assert whole.timings.queue_ms == whole.timings.total_ms > 0
    assert whole.timings.encode_ms == whole.timings.decode_ms == 0
    assert without_timings(whole) == first[2]
    assert await lookups(service) == (2, 0, 1)
    assert await computed(service) == 1
    assert await service.value("answer_cache_bytes", model="echo", version="2") > 0


async def test_a_sample_without_a_seed_is_drawn_again(service: Service) -> None:
    for _ in range(2):
        await service.generate(TEXT, top_k=3)
    assert await lookups(service) == (0, 0, 0)
    assert await computed(service) == 2


async def test_equal_requests_at_once_are_computed_once(service: Service) -> None:
    service.runtime.may_run.clear()
    calls = [service.generation.Generate(request(TEXT))]
    tasks = [asyncio.create_task(awaited(calls[0]))]
    await until(lambda: service.engine.slots_in_use == 1)
    calls += [service.generation.Generate(request(TEXT)) for _ in range(4)]
    tasks += [asyncio.create_task(awaited(call)) for call in calls[1:]]
    calls[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    # The server must know of it before the engine goes on, or it answers the call.
    await service.until_value(1, "requests_total", code="CANCELLED")
    service.runtime.may_run.set()
    answers = [without_timings(answer) for answer in await asyncio.gather(*tasks[1:])]
    assert answers == [answers[0]] * 4 and answers[0].hypotheses[0].text == TEXT
    hits, joined, misses = await lookups(service)
    assert hits + joined == 3 and misses == 1


async def test_a_deadline_is_that_of_each_call(service: Service) -> None:
    service.runtime.may_run.clear()
    patient = asyncio.create_task(service.generate(TEXT))
    await until(lambda: service.engine.slots_in_use == 1)
    error = await failure(service.generation.Generate(request(TEXT), timeout=0.1))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    service.runtime.may_run.set()
    assert (await patient).hypotheses[0].text == TEXT


async def test_one_with_a_time_limit_waits_for_no_other(service: Service) -> None:
    service.runtime.step_s = 0.02
    whole = asyncio.create_task(service.generate(TEXT))
    await until(lambda: service.engine.slots_in_use == 1)
    cut = await service.generate(TEXT, time_limit_ms=100)
    assert cut.hypotheses[0].stop_reason == generation_pb2.STOP_REASON_TIME_LIMIT
    assert (await whole).hypotheses[0].text == TEXT


async def test_sources_of_a_batch_share_answers(service: Service) -> None:
    sources = [TEXT, "b", TEXT, TEXT, "b"]
    for _ in range(2):
        found = await service.generation.GenerateBatch(batch(*sources))
        assert [each.response.hypotheses[0].text for each in found.outcomes] == sources
    hits, joined, misses = await lookups(service)
    assert (hits + joined, misses) == (8, 2)


async def test_other_kinds_of_calls_share_answers(service: Service) -> None:
    call = service.generation.GenerateBulk([bulk(number, TEXT) for number in range(6)])
    assert texts(await ended(call)) == dict.fromkeys(range(6), TEXT)
    assert await computed(service) == 1
    answer = await service.inference.ModelInfer(asking(TEXT))
    assert tensors(answer)["text"] == [TEXT]
    assert await computed(service) == 1


async def test_segments_share_answers_with_sentences(service: Service) -> None:
    await service.generate("Good day.")
    answer = await service.generate(SENTENCES, segmentation="sentences")
    assert answer.hypotheses[0].text == SENTENCES
    assert await computed(service) == 2
    hits, joined, misses = await lookups(service)
    assert (hits + joined, misses) == (2, 2)


@pytest.mark.parametrize(
    ("scope", "expected"), [(CacheScope.CALLER, (1, 0, 2)), (CacheScope.SERVER, (2, 0, 1))]
)
async def test_clients_share_answers_only_if_the_operator_says_so(
    scope: CacheScope, expected: tuple[int, int, int]
) -> None:
    options = {"cache_scope": scope, "cache_bytes": 1_000_000, "caller_metadata": "x-client"}
    async with serving(**options) as service:
        for client in ("ann", "bob", "ann"):
            metadata = (("x-client", client),)
            answer = await service.generation.Generate(request(TEXT), metadata=metadata)
            assert answer.hypotheses[0].text == TEXT
        # Another question has an answer of its own.
        await service.generate(TEXT, max_decoding_length=5)
        assert await lookups(service) == (*expected[:2], expected[2] + 1)


async def test_unloading_forgets(service: Service) -> None:
    await service.generate(TEXT)
    [model] = service.repository.models()
    answers = model.answers
    assert answers is not None and answers.counts.held_bytes > 0
    await service.rollout.unload("echo", 2)
    assert await service.value("answer_cache_bytes", model="echo", version="2") == 0
    assert await lookups(service) == (0, 0, 1), "counters do not fall"


async def test_without_a_cache_there_are_no_lookups() -> None:
    async with serving() as service:
        for _ in range(2):
            await service.generate(TEXT)
        assert await lookups(service) == (0, 0, 0)
        assert await computed(service) == 2
