import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tests.unit.server.front.calls import awaited, batch, bulk, ended, failure, invalid, request
from tests.unit.server.front.generate.asking import pair
from tests.unit.server.front.service import Service, serving, until

from seqserve.v1 import generation_pb2 as pb

FROM_KOREAN = {"source_language": "ko", "target_language": "de"}
SENTENCES = "One. Two. Three. Four. Five. Six."


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    others = {"ko-en": pair("ko", "en"), "en-de": pair("en", "de")}
    async with serving(others=others, default="echo") as service:
        yield service


async def pivoted(service: Service, source: str, **options: Any) -> Any:
    return await service.generate(source, **FROM_KOREAN, **options)


def pause(service: Service, model: str) -> Any:
    """Stops the engine of a model before its next step, until the test sets the event."""
    event = service.others[model].runtime.may_run
    event.clear()
    return event


async def test_the_answer_names_both_models(service: Service) -> None:
    answer = await pivoted(service, "abc")
    assert answer.hypotheses[0].text == "abc"
    assert (answer.model, answer.version) == ("en-de", 1)
    first, second = answer.legs
    legs = [
        (leg.model, leg.version, leg.source_language, leg.target_language, leg.text)
        for leg in (first, second)
    ]
    assert legs == [("ko-en", 1, "ko", "en", "abc"), ("en-de", 1, "en", "de", "")]
    counts = [(leg.source_tokens, leg.generated_tokens) for leg in (first, second)]
    assert counts == [(4, 3), (4, 3)]
    assert answer.hypotheses[0].confidence == pytest.approx(first.confidence * second.confidence)
    assert not (await service.generate("abc")).legs


async def test_a_text_goes_sentence_by_sentence(service: Service) -> None:
    answer = await pivoted(service, SENTENCES, segmentation="sentences")
    assert answer.hypotheses[0].text == answer.legs[0].text == SENTENCES
    spans = [(each.source_begin, each.source_end) for each in answer.segments]
    assert spans == [(each.target_begin, each.target_end) for each in answer.segments]
    assert len(spans) == 6 and not any(each.source_pieces for each in answer.segments)


async def test_white_space_and_what_no_model_reads_stay_as_they_are(service: Service) -> None:
    text = "\n One.\n\n ... \n Two.  "
    answer = await pivoted(service, text, segmentation="lines")
    assert answer.hypotheses[0].text == text


async def test_a_stream_sends_the_text_of_the_second_model(service: Service) -> None:
    for source, options in (("abc", {}), (SENTENCES, {"segmentation": "sentences"})):
        asked = request(source, **FROM_KOREAN, **options)
        events = [event async for event in service.generation.GenerateStream(asked)]
        assert "".join(event.piece.text for event in events[:-1]) == source
        assert [leg.model for leg in events[-1].result.legs] == ["ko-en", "en-de"]
        assert len(events) >= 2


async def test_the_second_model_begins_before_the_first_one_has_ended(service: Service) -> None:
    # Six parts are under way at once, so twelve sentences need the second model's answers to go on.
    may_run, text = pause(service, "en-de"), f"{SENTENCES} {SENTENCES}"
    call = asyncio.create_task(pivoted(service, text, segmentation="sentences"))
    second = service.others["en-de"].last.engine
    await until(lambda: second.slots_in_use + second.queue_depth == 6)
    # Neither version is let go meanwhile.
    used = [each for each in service.repository.models() if not await each.calls.wait_idle(0)]
    assert {model.manifest.name for model in used} == {"ko-en", "en-de"}
    may_run.set()
    assert (await call).hypotheses[0].text == text


async def test_sources_of_a_batch_and_of_a_bulk_call_go_over_the_pivot(service: Service) -> None:
    found = await service.generation.GenerateBatch(batch("ab", "", "c", **FROM_KOREAN))
    kinds = [outcome.WhichOneof("outcome") for outcome in found.outcomes]
    assert kinds == ["response", "failure", "response"]
    assert [len(outcome.response.legs) for outcome in found.outcomes] == [2, 0, 2]
    requests = [bulk(1, "abc", **FROM_KOREAN), bulk(2, "abc", model="en-de")]
    outcomes = await ended(service.generation.GenerateBulk(requests))
    assert [len(outcomes[id_].response.legs) for id_ in (1, 2)] == [2, 0]


async def test_a_cancelled_call_frees_the_slots_of_both_engines(service: Service) -> None:
    may_run = pause(service, "en-de")
    call = service.generation.Generate(request("abc", **FROM_KOREAN))
    task = asyncio.create_task(awaited(call))
    second = service.others["en-de"].last.engine
    await until(lambda: second.slots_in_use + second.queue_depth == 1)
    call.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # The server must know of it before the engine goes on, or it answers the call.
    await service.until_value(1, "requests_total", code="CANCELLED", model="en-de")
    may_run.set()
    for hosts in service.others.values():
        engine = hosts.last.engine
        await until(lambda engine=engine: not engine.slots_in_use)


async def test_a_deadline_is_over_both_models(service: Service) -> None:
    may_run = pause(service, "en-de")
    asked = request("abc", **FROM_KOREAN)
    error = await failure(service.generation.Generate(asked, timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    may_run.set()
    await until(lambda: not service.others["en-de"].last.engine.slots_in_use)


@pytest.mark.parametrize("model", ["ko-en", "en-de"])
async def test_a_fault_of_either_engine_ends_the_call(service: Service, model: str) -> None:
    service.others[model].runtime.fault = RuntimeError("broken")
    error = await failure(pivoted(service, "abc"))
    assert error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)


async def test_a_time_limit_that_passes_in_the_first_queue_leaves_no_text(service: Service) -> None:
    may_run = pause(service, "ko-en")
    ahead = asyncio.create_task(service.generate("a", model="ko-en"))
    engine = service.others["ko-en"].last.engine
    await until(lambda: engine.slots_in_use == 1)
    call = asyncio.create_task(pivoted(service, "b", time_limit_ms=50))
    await until(lambda: engine.slots_in_use + engine.queue_depth == 2)
    await asyncio.sleep(0.1)
    may_run.set()
    await ahead
    answer = await call
    assert (answer.model, answer.hypotheses[0].text) == ("en-de", "")
    assert answer.hypotheses[0].stop_reason == pb.STOP_REASON_TIME_LIMIT
    counts = [(leg.model, leg.generated_tokens) for leg in answer.legs]
    assert counts == [("ko-en", 0), ("en-de", 0)]


async def test_memory_for_both_models_is_reserved_before_the_first_works(service: Service) -> None:
    reserved = []
    for languages in ({"model": "ko-en"}, FROM_KOREAN):
        may_run = pause(service, "ko-en")
        call = asyncio.create_task(service.generate("abc", **languages))
        while not (size := await service.value("answer_bytes")):
            await asyncio.sleep(0.002)
        reserved.append(size)
        may_run.set()
        await call
        await service.until_value(0, "answer_bytes")
    assert reserved[1] > reserved[0]


async def test_calls_of_one_model_are_refused_by_the_field(service: Service) -> None:
    asked = pb.ScoreRequest(source="a", target="b", **FROM_KOREAN)
    assert await invalid(service.generation.Score(asked)) == (
        "target_language",
        "'de' is reached from 'ko' over 'en' only; this call is of one model: name ko-en or en-de",
    )
    attention = pb.AttentionRequest(source="a", **FROM_KOREAN)
    assert (await invalid(service.generation.Attention(attention)))[0] == "target_language"
    field, reason = await invalid(pivoted(service, "a", version=1))
    assert field == "version" and reason.startswith("is 1, but two models serve the languages")
