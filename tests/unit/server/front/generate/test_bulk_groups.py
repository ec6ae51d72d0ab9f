import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logged import fields_of
from tests.unit.server.front.calls import bulk, texts
from tests.unit.server.front.generate.test_bulk import (
    CANCELLED,
    INVALID,
    PATH,
    answered_by,
    until_busy,
)
from tests.unit.server.front.security.test_usage import METADATA, limited
from tests.unit.server.front.service import Service, serving, stepwise, until

from seqserve.v1 import generation_pb2
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.bulk import MAX_REQUESTS, Bulk

Request, Response = generation_pb2.GenerateBulkRequest, generation_pb2.GenerateBulkResponse
MOST_BYTES = 64 << 10


def several(requests: Sequence[Any], max_response_bytes: int = MOST_BYTES) -> Any:
    message = Request(max_response_bytes=max_response_bytes)
    message.MergeFrom(requests[0])
    message.more.extend(requests[1:])
    return message


async def answered(call: Any) -> tuple[dict[int, Any], list[Any]]:
    """Reads a call to its end; gives the outcomes by their ids, and the responses."""
    responses = [response async for response in call]
    outcomes = [each for response in responses for each in (response, *response.more)]
    found = {each.id: each.outcome for each in outcomes if each.HasField("outcome")}
    assert len(found) == sum(each.HasField("outcome") for each in outcomes)
    return found, responses


async def test_a_client_that_reads_one_outcome_gets_one(service: Service) -> None:
    requests = [bulk(number, "abc") for number in range(30)]
    sent = [*requests[:10], several(requests[10:], max_response_bytes=0)]
    found, responses = await answered(service.generation.GenerateBulk(sent))
    assert texts(found) == dict.fromkeys(range(30), "abc")
    assert not any(each.more or each.max_requests for each in responses)
    assert len(responses) == 30


@pytest.mark.parametrize(
    ("max_response_bytes", "outcomes"), [(MOST_BYTES, [60]), (250, [2] * 30), (1, [1] * 60)]
)
async def test_outcomes_that_are_ready_together_share_a_response(
    max_response_bytes: int, outcomes: list[int]
) -> None:
    async def read(asked: Any, call: ServerCall) -> list[Any]:
        def ready(source: str) -> Any:
            answer: asyncio.Future[Any] = asyncio.Future()
            answer.set_result(generation_pb2.GenerateResponse(model=source))
            return answer

        return [partial(ready, source) for source in asked.sources]

    async def messages() -> AsyncIterator[Any]:
        requests = [bulk(number, "a" * 100) for number in range(10, 70)]
        yield several(requests, max_response_bytes)

    handled = Bulk(ServerCall(path=PATH, request_id="mine"), read, 60, asyncio.Event())
    async with aclosing(handled.responses(messages())) as encoded:
        told, *responses = [Response.FromString(each) async for each in encoded]
    assert told == Response(max_requests=MAX_REQUESTS)
    assert [1 + len(each.more) for each in responses] == outcomes
    several_outcomes = [each.ByteSize() for each in responses if each.more]
    assert max(several_outcomes, default=0) <= max_response_bytes


async def test_the_server_tells_at_once_that_it_reads_several(service: Service) -> None:
    service.runtime.may_run.clear()
    call = service.generation.GenerateBulk()
    await call.write(several([bulk(1, "abc")]))
    told = await call.read()
    assert (told.max_requests, told.HasField("outcome")) == (MAX_REQUESTS, False)
    service.runtime.may_run.set()
    assert (await call.read()).id == 1
    await call.done_writing()


async def test_too_many_requests_fail_and_the_call_goes_on(service: Service) -> None:
    requests = [bulk(number, "abc") for number in range(MAX_REQUESTS + 1)]
    sent = [several(requests), bulk(1000, "good")]
    found, _ = await answered(service.generation.GenerateBulk(sent))
    assert texts({1000: found.pop(1000)}) == {1000: "good"}
    assert sorted(found) == list(range(MAX_REQUESTS + 1))
    assert {each.failure.code for each in found.values()} == {INVALID}
    assert {each.failure.field for each in found.values()} == {"more"}
    assert "128; a message takes at most 127" in found[0].failure.message


async def test_further_requests_have_none_themselves(service: Service) -> None:
    nested = several([bulk(2, "abc"), bulk(3, "abc")])
    sent = [several([bulk(1, "good"), nested, bulk(4, "also good")])]
    found, _ = await answered(service.generation.GenerateBulk(sent))
    assert texts({number: found[number] for number in (1, 4)}) == {1: "good", 4: "also good"}
    assert {found[number].failure.field for number in (2, 3)} == {"more"}


async def test_no_more_are_in_flight_than_of_single_messages(service: Service) -> None:
    service.runtime.may_run.clear()
    requests = several([bulk(number, "abc") for number in range(100)])
    call = service.generation.GenerateBulk([requests] * 3)
    await until_busy(service, 6)
    await asyncio.sleep(0.05)
    assert service.engine.slots_in_use + service.engine.queue_depth == 6
    call.cancel()
    service.runtime.may_run.set()
    await until_busy(service, 0)
    await service.until_value(1, "requests_total", **CANCELLED)


@pytest.mark.parametrize("grouped", [True, False])
async def test_a_slow_answer_delays_no_other(service: Service, grouped: bool) -> None:
    service.runtime.step_s = 0.02
    requests = [bulk(1, "a" * 40), bulk(2, "bc"), bulk(3, "d" * 20)]
    sent = [several(requests)] if grouped else requests
    found, _ = await answered(service.generation.GenerateBulk(sent))
    assert list(found) == [2, 3, 1]


async def test_memory_goes_back_with_each_outcome() -> None:
    async with serving(slots=4) as service:
        call = service.generation.GenerateBulk()
        service.runtime.hold_after(0)
        await call.write(several([bulk(1, "a" * 40), *(bulk(n, "a") for n in (2, 3, 4))], 1))
        assert (await call.read()).max_requests
        held = await service.value("answer_bytes")
        assert held > 0
        for _ in range(3):
            assert (await stepwise(service, call.read())).id != 1
        await service.until_value(held / 4, "answer_bytes")
        call.cancel()
        await service.until_value(0, "answer_bytes")


async def test_answers_that_are_large_together_need_not_wait_for_each_other() -> None:
    async with serving(slots=16, max_answer_mb=6) as service:
        service.runtime.may_run.clear()
        options = {"return_top_tokens": 64, "max_decoding_length": 40}
        requests = [bulk(number, "abc" * 9, **options) for number in range(20)]
        first = service.generation.GenerateBulk(requests[:10])
        await until_busy(service, 10)
        # Together with those all of these would not fit into the memory.
        second = service.generation.GenerateBulk([several(requests)])
        await until(lambda: service.engine.slots_in_use + service.engine.queue_depth > 10)
        service.runtime.may_run.set()
        await answered(first)
        found, _ = await answered(second)
        assert texts(found) == dict.fromkeys(range(20), "abc" * 9)


@pytest.mark.parametrize(("seed", "seeds"), [(None, 6), (7, 1)])
async def test_each_sample_without_a_seed_draws_its_own(
    service: Service, specs: list[Spec], seed: int | None, seeds: int
) -> None:
    requests = [bulk(number, "abc", top_k=5, seed=seed) for number in range(6)]
    found, _ = await answered(service.generation.GenerateBulk([several(requests)]))
    assert len(found) == 6
    drawn = [spec.options.sampling for spec in specs if isinstance(spec, GenerateSpec)]
    assert len({sampling.seed for sampling in drawn if sampling}) == seeds


async def test_each_is_counted_as_alone(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    requests = [bulk(1, "secret"), bulk(2, ""), bulk(3, "words")]
    await answered(service.generation.GenerateBulk([several(requests)]))
    (line,) = fields_of(caplog)
    counts = {name: line[name] for name in ("sources", "source_tokens", "generated_tokens")}
    tokens = len("secret") + len("words")
    assert counts == {"sources": 3, "source_tokens": tokens + 2, "generated_tokens": tokens}
    await service.until_value(1, "rejected_total", reason="invalid")
    assert await answered_by(service) == 2


async def test_usage_and_quotas_count_each(tmp_path: Path) -> None:
    async with limited(tmp_path, "requests/day=5") as service:

        async def messages() -> AsyncIterator[Any]:
            yield several([bulk(number, "abc") for number in range(5)])
            await service.until_value(5, "caller_requests_total", caller="shop")
            yield several([bulk(number, "abc") for number in range(5, 9)])

        call = service.generation.GenerateBulk(messages(), metadata=METADATA)
        found, _ = await answered(call)
        assert texts({n: found[n] for n in range(5)}) == dict.fromkeys(range(5), "abc")
        refused = {found[number].failure.code for number in range(5, 9)}
        assert refused == {grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]}
        assert await service.value("caller_characters_total", caller="shop") == 15


DRAWN = st.lists(
    st.tuples(
        st.sampled_from(["abc", "", "Grüße 🙂", "x" * 100, "a b. c d.", "e\nf"]),
        st.sampled_from(
            [
                {},
                {"max_decoding_length": 2},
                {"beam_size": 3, "num_hypotheses": 2},
                {"beam_size": 0},
                {"segmentation": "lines"},
                {"top_k": 5, "seed": 7},
                {"return_token_scores": True},
            ]
        ),
        st.sampled_from(["", "echo", "made up"]),
    ),
    min_size=1,
    max_size=20,
)


@given(DRAWN, st.lists(st.integers(1, 7), max_size=8), st.sampled_from([0, 500, MOST_BYTES]))
@settings(max_examples=30)
def test_any_grouping_gives_the_same_answers(
    drawn: list[tuple[str, dict[str, Any], str]], sizes: list[int], max_response_bytes: int
) -> None:
    requests = [
        bulk(number, source, model=model, **options)
        for number, (source, options, model) in enumerate(drawn)
    ]
    messages, left = [], requests
    for size in [*sizes, *[1] * len(requests)]:
        if left:
            messages.append(several(left[:size], max_response_bytes))
            left = left[size:]

    async def outcomes() -> list[dict[int, Any]]:
        async with serving() as service:
            calls = [service.generation.GenerateBulk(sent) for sent in (requests, messages)]
            return [(await answered(call))[0] for call in calls]

    alone, grouped = asyncio.run(outcomes())
    assert alone.keys() == grouped.keys() == set(range(len(drawn)))
    for number, outcome in alone.items():
        for each in (outcome, grouped[number]):
            each.response.ClearField("timings")
        assert outcome == grouped[number]
