import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any, cast
from unittest import mock

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from tests.support.logged import fields_of
from tests.unit.server.front.calls import (
    bulk,
    details,
    ended,
    failure,
    invalid,
    line_of,
    request,
    texts,
)
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.service import Service, busy, serving, stepwise, until

from seqserve import AsyncClient, Result, RetryPolicy
from seqserve.v1 import generation_pb2, generation_pb2_grpc, model_pb2
from seqserve_server.contract.errors import InvalidRequest, Unreadable
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.bulk import Bulk

METHOD = "GenerationService.GenerateBulk"
PATH = f"/seqserve.v1.{METHOD.replace('.', '/')}"
INVALID = grpc.StatusCode.INVALID_ARGUMENT.value[0]
NOT_FOUND = grpc.StatusCode.NOT_FOUND.value[0]
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
FAILED_PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION.value[0]
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]


async def begun(service: Service, *requests: Any, **settings: Any) -> Any:
    """A call that stays open after some requests."""
    call = service.generation.GenerateBulk(**settings)
    for one in requests:
        await call.write(one)
    return call


async def answered_by(service: Service) -> float:
    return await service.value("stop_total", model="echo", reason="eos")


async def until_busy(service: Service, requests: int) -> None:
    await until(lambda: service.engine.slots_in_use + service.engine.queue_depth == requests)


# ---- outcomes


async def test_each_request_gets_its_answer_as_alone(service: Service) -> None:
    sources = {number: f"Grüße 🙂 {number}" for number in range(50)}
    requests = [bulk(id_, source, max_decoding_length=9) for id_, source in sources.items()]
    call = service.generation.GenerateBulk(requests)
    outcomes = await ended(call)
    assert outcomes.keys() == sources.keys()
    for id_, source in sources.items():
        alone = await service.generate(source, max_decoding_length=9)
        assert list(outcomes[id_].response.hypotheses) == list(alone.hypotheses)
    assert await call.code() is grpc.StatusCode.OK


async def test_each_names_its_model_and_options(service: Service) -> None:
    requests = [
        bulk(1, "abc", model="echo", version=2),
        bulk(2, "abc", max_decoding_length=1),
        bulk(3, "abc", version=1),
        bulk(4, "abc", model="made up"),
    ]
    outcomes = await ended(service.generation.GenerateBulk(requests))
    assert texts({id_: outcomes[id_] for id_ in (1, 2)}) == {1: "abc", 2: "a"}
    assert [outcomes[id_].failure.code for id_ in (3, 4)] == [FAILED_PRECONDITION, NOT_FOUND]


async def test_bad_request_has_its_own_failure(service: Service) -> None:
    requests = [
        bulk(1, "good"),
        bulk(2, ""),
        bulk(3, "x" * 100),
        bulk(4, "a", beam_size=0),
        generation_pb2.GenerateBulkRequest(id=5),
        bulk(6, "also good"),
    ]
    outcomes = await ended(service.generation.GenerateBulk(requests))
    assert texts({id_: outcomes.pop(id_) for id_ in (1, 6)}) == {1: "good", 6: "also good"}
    fields = {id_: (bad.failure.code, bad.failure.field) for id_, bad in outcomes.items()}
    options = {4: (INVALID, "options.beam_size")}
    assert fields == dict.fromkeys((2, 3, 5), (INVALID, "source")) | options
    assert all(bad.failure.message.startswith(bad.failure.field) for bad in outcomes.values())


# A source, and an option, that are not UTF-8.
NO_TEXT = b"\x1a\x02\xff\xfe"
NO_TOKEN = b"\x22\x04\x7a\x02\xff\xfe"


def unreadable(id_: int) -> bytes:
    return generation_pb2.GenerateBulkRequest(id=id_).SerializeToString() + b"\x12\x04" + NO_TEXT


def raw(service: Service, *messages: bytes) -> Any:
    read = generation_pb2.GenerateBulkResponse.FromString
    return service.channel.stream_stream(PATH, response_deserializer=read)(messages)


async def test_request_that_cannot_be_parsed_has_its_own_failure(service: Service) -> None:
    call = raw(
        service,
        b"\x08\x07\x12\x04" + NO_TEXT,
        b"\x08\x08\x12\x06" + NO_TOKEN,
        b"\x12\x04" + NO_TEXT,
        bulk(9, "good").SerializeToString(),
    )
    outcomes = await ended(call)
    assert texts({9: outcomes.pop(9)}) == {9: "good"}
    found = {id_: (one.failure.code, one.failure.field) for id_, one in outcomes.items()}
    assert found == dict.fromkeys((7, 8, 0), (INVALID, "request"))


async def test_request_without_a_readable_id_ends_the_call(service: Service) -> None:
    call = raw(service, bulk(1, "elder").SerializeToString(), b"\xff")
    assert (await call.read()).id == 1
    assert (await invalid(call.read()))[0] == "request"


async def test_engine_that_dies_fails_its_requests(service: Service) -> None:
    service.runtime.may_run.clear()
    call = await begun(service, bulk(1, "abc"))
    await until_busy(service, 1)
    service.hosts.last.break_down()
    lost = (await call.read()).outcome.failure
    assert lost.code == UNAVAILABLE and lost.retry_after_ms > 0
    service.runtime.may_run.set()
    await until(lambda: service.remote.status.is_up)
    await call.write(bulk(2, "def"))
    await call.done_writing()
    assert texts({2: (await call.read()).outcome}) == {2: "def"}
    assert await call.read() is EOF


async def test_timings_begin_when_a_source_arrives(service: Service) -> None:
    call = await begun(service, bulk(1, "abc"))
    await call.read()
    await asyncio.sleep(0.1)
    began_s = time.monotonic()
    await call.write(bulk(2, "abc"))
    timings = (await call.read()).outcome.response.timings
    assert 0 < timings.queue_ms < timings.total_ms < 1e3 * (time.monotonic() - began_s)
    await call.done_writing()


# ---- how much is read


async def endless(read: list[int] | None = None) -> AsyncIterator[Any]:
    for number in itertools.count():
        if read is not None:
            read.append(number)
        yield bulk(number, "abcdefgh")


async def test_engine_gets_half_as_many_requests_more_as_it_has_slots(service: Service) -> None:
    service.runtime.may_run.clear()
    call = service.generation.GenerateBulk(endless())
    await until_busy(service, 6)
    await asyncio.sleep(0.05)
    assert service.engine.slots_in_use + service.engine.queue_depth == 6
    # So others need not wait long.
    other = asyncio.ensure_future(service.generate("other"))
    await until_busy(service, 7)
    service.runtime.may_run.set()
    assert (await other).hypotheses[0].text == "other"
    call.cancel()


async def test_server_stops_reading_from_a_slow_reader(service: Service) -> None:
    # What gRPC keeps on the way is bounded in bytes; the least that it can be told.
    options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 10)]
    target = f"127.0.0.1:{service.server.port}"
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        call = generation_pb2_grpc.GenerationServiceStub(channel).GenerateBulk(endless())
        # On a busy machine one look may fall between two requests; the input has no end.
        looks = [0.0]
        async with asyncio.timeout(PATIENCE_S):
            while not looks[-1] or len(set(looks[-5:])) > 1 or service.engine.slots_in_use:
                await asyncio.sleep(0.1)
                looks.append(await answered_by(service))
        for _ in range(int(looks[-1])):
            await call.read()
        await until(lambda: service.engine.slots_in_use > 0)
        call.cancel()


async def test_bulk_has_room_of_its_own_beside_single_requests() -> None:
    async with busy(1, slots=2, max_queue=1) as service:
        error = await failure(service.generate("one too many"))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        call = service.generation.GenerateBulk([bulk(number, "abc") for number in range(5)])
        await until(lambda: service.engine.queue_depth == 2)
        service.runtime.may_run.set()
        assert texts(await ended(call)) == dict.fromkeys(range(5), "abc")
        await service.until_value(1, "rejected_total", model="echo", reason="queue_full")


async def test_requests_have_a_priority() -> None:
    async with busy() as service:
        low, wrong = bulk(1, "abc"), bulk(2, "abc")
        low.request.priority = generation_pb2.PRIORITY_LOW
        wrong.request.priority = cast(Any, 9)
        call = service.generation.GenerateBulk([wrong, low])
        await until(lambda: service.engine.low_queue_depth == 1)
        service.runtime.may_run.set()
        outcomes = await ended(call)
        assert outcomes[2].failure.field == "priority"
        assert texts({1: outcomes[1]}) == {1: "abc"}


# ---- how it ends


CANCELLED = {"method": METHOD, "code": "CANCELLED", "model": "echo"}


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "half-closed"])
async def test_cancel_stops_requests_under_way(service: Service, is_closed: bool) -> None:
    service.runtime.hold_after(2)
    call = await begun(service, *(bulk(number, "a" * 48) for number in range(3)))
    if is_closed:
        await call.done_writing()
    await until_busy(service, 3)
    call.cancel()
    await service.until_value(1, "requests_total", **CANCELLED)
    service.runtime.go_on()
    await until_busy(service, 0)
    await service.until_value(3, "cancelled_total", model="echo")
    assert await answered_by(service) == 0


async def test_cancel_without_requests_under_way_is_a_cancel(service: Service) -> None:
    call = await begun(service, bulk(1, "abc"))
    await call.read()
    call.cancel()
    await service.until_value(1, "requests_total", **CANCELLED)
    assert await service.value("requests_total", method=METHOD, code="OK", model="echo") == 0


async def test_cancel_while_the_server_waits_for_the_reader(service: Service) -> None:
    call = service.generation.GenerateBulk(endless())
    await call.read()
    call.cancel()
    await until_busy(service, 0)
    await service.until_value(1, "requests_total", **CANCELLED)


async def test_cancel_while_the_queue_is_full() -> None:
    async with busy(1, max_queue=1) as service:
        call = await begun(service, bulk(1, "abc"))
        await asyncio.sleep(0.1)
        call.cancel()
        await service.until_value(1, "requests_total", **CANCELLED)
        service.runtime.may_run.set()
        await until_busy(service, 0)
        assert await answered_by(service) == 2


async def test_deadline(service: Service) -> None:
    service.runtime.hold_after(0)
    call = await begun(service, *(bulk(number, "a" * 48) for number in range(2)), timeout=1)
    await stepwise(service, until(lambda: service.engine.slots_in_use == 2))
    assert (await failure(call.read())).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await service.until_value(1, "requests_total", **CANCELLED | {"code": "DEADLINE_EXCEEDED"})
    service.runtime.go_on()
    await until_busy(service, 0)
    await service.until_value(2, "deadline_exceeded_total", model="echo", where="decode")
    assert await service.value("cancelled_total", model="echo") == 0


async def test_drain_finishes_requests_under_way_and_reads_no_more(service: Service) -> None:
    service.runtime.may_run.clear()
    call = await begun(service, *(bulk(number, "abc") for number in range(4)))
    idle = await begun(service)
    await until_busy(service, 4)
    drained = asyncio.ensure_future(service.server.drain(PATIENCE_S))
    await until(lambda: not service.server.is_ready)
    error = await failure(idle.read())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    await call.write(bulk(4, "too late"))
    service.runtime.may_run.set()
    assert {(await call.read()).id for _ in range(4)} == {0, 1, 2, 3}
    error = await failure(call.read())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert details(error, RetryInfo) is not None
    assert await drained


async def test_drain_does_not_affect_a_call_that_sent_everything(service: Service) -> None:
    service.runtime.may_run.clear()
    call = await begun(service, *(bulk(number, "abc") for number in range(3)))
    await call.done_writing()
    await until_busy(service, 3)
    # The server has read the end of the requests before a later call on the same connection.
    await service.models.ListModels(model_pb2.ListModelsRequest())
    drained = asyncio.ensure_future(service.server.drain(PATIENCE_S))
    await until(lambda: not service.server.is_ready)
    service.runtime.may_run.set()
    assert len(await ended(call)) == 3
    assert await drained


async def test_engine_that_drains_ends_the_call(service: Service) -> None:
    service.remote.close()
    call = await begun(service, bulk(1, "abc"))
    assert (await failure(call.read())).code() is grpc.StatusCode.UNAVAILABLE


async def test_the_client_takes_the_rest_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqserve_server.front.telemetry.call_record._UNAVAILABLE_RETRY_S", 0.01)
    async with serving() as one, serving() as other:
        services = (one, other)
        for service in services:
            # Enough for the first answers.
            service.runtime.hold_after(10)
        target = ",".join(f"127.0.0.1:{service.server.port}" for service in services)
        sources = [f"text {number}" for number in range(30)]
        async with AsyncClient(target, retry=RetryPolicy(initial_backoff_s=0.01)) as client:
            outcomes = client.generate_bulk(sources)
            found = [await anext(outcomes)]
            counts = [await answered_by(service) for service in services]
            first, second = services if counts[0] else services[::-1]
            drained = asyncio.ensure_future(first.server.drain(PATIENCE_S))
            await asyncio.sleep(0)
            for service in services:
                service.runtime.go_on()
            found += [outcome async for outcome in outcomes]
            assert await drained
        told = {number: answer.text for number, answer in found if isinstance(answer, Result)}
        assert told == dict(enumerate(sources))
        assert len(found) == len(sources)
        assert 0 < await answered_by(second) < len(sources)


async def test_log_line_of_a_bulk_call(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    requests = [bulk(1, "secret"), bulk(2, ""), bulk(3, "words")]
    call = service.generation.GenerateBulk(requests, metadata=(("x-request-id", "mine-1"),))
    await ended(call)
    assert dict(await call.trailing_metadata())["x-request-id"] == "mine-1"
    (line,) = fields_of(caplog)
    assert line.pop("ms") > 0
    tokens = len("secret") + len("words")
    counts = {"sources": 3, "source_tokens": tokens + 2, "generated_tokens": tokens}
    assert line == line_of(METHOD, id="mine-1", **counts)
    seconds = {"method": METHOD, "model": "echo"}
    assert await service.value("request_duration_seconds_count", **seconds) == 1


# ---- alone, without gRPC and an engine

Answer = Callable[[Any, ServerCall], Any]


async def answer(asked: Any, call: ServerCall) -> Any:
    await asyncio.sleep(0)
    return generation_pb2.GenerateResponse(model=asked.source)


def reading(answer: Answer) -> Any:
    """Reads nothing, and has each source answered."""

    async def read(asked: Any, call: ServerCall) -> list[Any]:
        if isinstance(asked, generation_pb2.GenerateRequest):
            return [partial(answer, asked, call)]
        return [partial(answer, request(source), call) for source in asked.sources]

    return read


def make(answer: Answer = answer, most: int = 3) -> Bulk:
    call = ServerCall(path=PATH, request_id="mine")
    return Bulk(call, reading(answer), most, asyncio.Event())


parsed = generation_pb2.GenerateBulkResponse.FromString


async def these(requests: Iterable[Any]) -> AsyncIterator[Any]:
    for one in requests:
        yield one


async def test_reading_waits_until_responses_are_taken() -> None:
    read: list[int] = []
    async with aclosing(make(most=3).responses(endless(read))) as responses:
        for taken in range(5):
            await anext(responses)
            await asyncio.sleep(0.01)
            # The one just given counts as under way until the next one is asked for.
            assert len(read) == taken + 3


async def test_a_response_is_taken_once_the_next_one_is_asked_for() -> None:
    taken: list[str] = []

    async def noting(asked: Any, call: ServerCall) -> Any:
        call.held = mock.Mock(release=lambda: taken.append(asked.source))
        return await answer(asked, call)

    requests = these([bulk(number, str(number)) for number in range(3)])
    async with aclosing(make(noting).responses(requests)) as responses:
        for count in range(3):
            await anext(responses)
            await asyncio.sleep(0.01)
            assert len(taken) == count


async def test_nothing_to_do() -> None:
    assert [response async for response in make().responses(these([]))] == []


async def test_internal_fault_ends_the_call() -> None:
    async def fail(asked: Any, call: ServerCall) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as fault:
        async for _ in make(fail).responses(these([bulk(1, "a"), bulk(2, "b")])):
            pass
    assert isinstance(fault.value.exceptions[0], ZeroDivisionError)


async def test_a_refusal_counts_under_the_model_of_its_own_request() -> None:
    counted: list[tuple[str, str]] = []
    call = ServerCall(
        path=PATH,
        request_id="mine",
        count_refusal=lambda model, error: counted.append((model, str(error))),
    )

    async def resolve(asked: Any, call: ServerCall) -> Any:
        if asked.source == "bad":
            raise InvalidRequest("model", "is none")
        call.model = asked.source
        if asked.source == "b":
            raise InvalidRequest("source", "is b")
        return await answer(asked, call)

    async def requests() -> AsyncIterator[Any]:
        for number, source in enumerate(["a", "b", "bad"]):
            yield bulk(number, source)
        yield Unreadable("is not UTF-8", unreadable(3))

    handled = Bulk(call, reading(resolve), 1, asyncio.Event())
    async with aclosing(handled.responses(requests())) as responses:
        assert [parsed(response).id async for response in responses] == [0, 1, 2, 3]
    assert [model for model, _ in counted] == ["b", "", ""]
    assert call.model == "b", "the last one that was found stands for the call"


async def test_unreadable_requests_are_bounded_too() -> None:
    read = itertools.count()

    async def requests() -> AsyncIterator[Any]:
        while True:
            yield Unreadable("is not UTF-8", unreadable(next(read)))

    async with aclosing(make(most=2).responses(requests())) as responses:
        assert parsed(await anext(responses)).outcome.failure.field == "request"
        await asyncio.sleep(0.01)
    assert next(read) == 2
