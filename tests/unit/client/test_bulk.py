"""Bulk calls of both clients, over one call or, if calls break, several."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest
from tests.support.process import eventually, until

from seqserve import (
    AsyncClient,
    CallError,
    Cancelled,
    Client,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    NotFound,
    Overloaded,
    Result,
    RetryPolicy,
    Unavailable,
)
from seqserve._transport.connection import Method
from seqserve.v1 import generation_pb2

from .answers import answer
from .fake_server import PATIENCE_S, FakeServer
from .sessions import ONCE, Connect

SOON = RetryPolicy(max_attempts=3, initial_backoff_s=0.01)
UNAVAILABLE = Unavailable("UNAVAILABLE", "draining", retry_after_s=0.0)

Outcomes = list[tuple[int, Result | CallError]]
Bulk = Callable[..., Outcomes]


@pytest.fixture(params=[0, 16], ids=["one-a-message", "several-a-message"])
def server(server: FakeServer, request: pytest.FixtureRequest) -> FakeServer:
    server.max_requests = request.param
    return server


@pytest.fixture
def bulk(connect: Connect) -> Bulk:
    """Returns all outcomes in the order of their arrival."""

    def run(target: str, sources: Iterable[str], **options: Any) -> Outcomes:
        retry = options.pop("retry", SOON)
        outcomes: Outcomes = connect(target, retry=retry).generate_bulk(sources, **options)
        return outcomes

    return run


def texts(outcomes: Outcomes) -> dict[int, str]:
    found = {}
    for number, outcome in outcomes:
        assert isinstance(outcome, Result) and number not in found
        found[number] = outcome.text
    return found


def capitals(sources: Iterable[str]) -> dict[int, str]:
    return {number: source.upper() for number, source in enumerate(sources)}


def test_outcomes_come_as_they_are_ready(server: FakeServer, bulk: Bulk) -> None:
    sources = ["late 0", *(f"n {number}" for number in range(1, 200))]
    outcomes = bulk(server.target, sources, model="m", beam_size=2)
    assert texts(outcomes) == capitals(sources)
    assert [number for number, _ in outcomes].index(0) == 20
    assert {request.model for request in server.requests} == {"m"}
    assert {request.options.beam_size for request in server.requests} == {2}


def test_a_source_that_fails_has_an_error_of_its_own(server: FakeServer, bulk: Bulk) -> None:
    sources = ["a", "", "fail INTERNAL", "\udce9", "b"]
    outcomes = dict(bulk(server.target, sources))
    assert texts([(number, outcomes.pop(number)) for number in (0, 4)]) == {0: "A", 4: "B"}
    kinds = [type(outcomes[number]) for number in (1, 2, 3)]
    assert kinds == [InvalidArgument, InternalError, InvalidArgument]
    assert "half a character" in str(outcomes[3])
    assert len(server.requests) == 4, "what cannot be sent was sent"


def test_nothing_to_do_needs_no_server(bulk: Bulk) -> None:
    assert bulk("127.0.0.1:1", []) == []
    [(number, error)] = bulk("127.0.0.1:1", ["\udce9"])
    assert number == 0 and isinstance(error, InvalidArgument)


def test_wrong_settings_are_refused_before_anything_is_sent(server: FakeServer, bulk: Bulk) -> None:
    for wrong in ({"concurrency": 0}, {"timeout_s": 0.0}, {"stop_sequences": "end"}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            bulk(server.target, ["a"], **wrong)
    assert server.requests == []


def test_a_message_has_what_is_at_hand(server: FakeServer) -> None:
    answered = threading.Event()
    sources = [f"n {number}" for number in range(400)]

    def known_first() -> Iterator[str]:
        yield sources[0]
        assert answered.wait(PATIENCE_S)
        yield from sources[1:]

    outcomes = []
    with Client(server.target) as client:
        for outcome in client.generate_bulk(known_first(), model="m", beam_size=2):
            outcomes.append(outcome)
            answered.set()
    assert texts(outcomes) == capitals(sources)
    sizes = [1 + len(message.more) for message in server.messages]
    assert server.messages[0].max_response_bytes > 0
    # Whether the server reads several was not known before.
    assert sizes[0] == 1
    assert max(sizes) <= max(server.max_requests, 1)
    assert (max(sizes) > 1) == (server.max_requests > 1)
    sent = [each.id for message in server.messages for each in (message, *message.more)]
    assert sent == list(range(len(sources)))
    assert {(each.model, each.options.beam_size) for each in server.requests} == {("m", 2)}


def test_a_message_has_few_bytes(server: FakeServer, bulk: Bulk) -> None:
    sources = [f"{number} " + "x" * 9_000 for number in range(100)]
    assert texts(bulk(server.target, sources)) == capitals(sources)
    assert max(message.ByteSize() for message in server.messages) <= 64 << 10


def test_a_message_is_not_too_large_because_of_several(bulk: Bulk) -> None:
    server = FakeServer(max_message_bytes=2_000)
    server.max_requests = 16
    sources = [*(f"{number} " + "x" * 300 for number in range(100)), "y" * 3_000, "z" * 1_990]
    outcomes = dict(bulk(server.target, sources))
    server.stop()
    assert isinstance(outcomes.pop(100), InvalidArgument)
    assert {number: str(getattr(each, "text", each)) for number, each in outcomes.items()} == {
        number: source.upper() for number, source in enumerate(sources) if number != 100
    }


def test_a_source_does_not_wait_for_others(server: FakeServer) -> None:
    """What is at hand is sent, though the server would read more."""
    answered = threading.Semaphore(1)

    def slow_input() -> Iterator[str]:
        for number in range(5):
            assert answered.acquire(timeout=PATIENCE_S)
            yield f"n {number}"

    with Client(server.target) as client:
        for _ in client.generate_bulk(slow_input()):
            answered.release()
    assert [len(message.more) for message in server.messages] == [0] * 5


def test_each_call_learns_anew_how_many_the_server_reads(server: FakeServer, bulk: Bulk) -> None:
    """The next call may reach an older server."""
    sources = [f"n {number}" for number in range(100)]
    sources[50] = "busy 1 b"
    assert texts(bulk(server.target, sources)) == capitals(sources)
    asked = [bool(message.max_response_bytes) for message in server.messages]
    again = len(asked) - 1 - asked[::-1].index(True)
    assert server.bulk_calls == 2 and again > 0
    assert not server.messages[again].more


# ---- calls that break


def test_another_call_is_sent_the_sources_without_an_answer(server: FakeServer, bulk: Bulk) -> None:
    read = itertools.count()
    words = ["a", "late b", "busy 2 c", "d", "e"]
    outcomes = bulk(server.target, (words[next(read)] for _ in words), concurrency=5)
    assert texts(outcomes) == capitals(words)
    assert next(read) == len(words), "the input was read again"


@pytest.mark.parametrize("concurrency", [2, 100])
def test_a_source_that_has_no_answer_for_now_is_sent_again(
    server: FakeServer, bulk: Bulk, concurrency: int
) -> None:
    sources = [f"later 2 {n}" if n % 7 == 0 else f"n {n}" for n in range(50)]
    assert texts(bulk(server.target, sources, concurrency=concurrency)) == capitals(sources)
    sent = Counter(request.source for request in server.requests)
    assert sent == {source: 3 if source.startswith("later") else 1 for source in sources}


def test_a_source_that_never_has_an_answer_has_its_error(server: FakeServer, bulk: Bulk) -> None:
    sources = ["a", "fail UNAVAILABLE", "fail RESOURCE_EXHAUSTED", "later 2 b"]
    outcomes = dict(bulk(server.target, sources))
    assert texts([(number, outcomes[number]) for number in (0, 3)]) == {0: "A", 3: "LATER 2 B"}
    assert [type(outcomes[number]) for number in (1, 2)] == [Unavailable, Overloaded]
    assert Counter(request.source for request in server.requests) == {
        "a": 1, "fail UNAVAILABLE": 3, "fail RESOURCE_EXHAUSTED": 3, "later 2 b": 3
    }  # fmt: skip


def test_an_answer_resets_the_count_of_failures(server: FakeServer, bulk: Bulk) -> None:
    sources = [f"busy 2 {number}" for number in range(5)]
    assert texts(bulk(server.target, sources, concurrency=1)) == capitals(sources)


def test_the_last_failure_is_raised_or_one_that_is_final(server: FakeServer, bulk: Bulk) -> None:
    with pytest.raises(Overloaded, match="says the fake"):
        bulk(server.target, ["a", "busy 3 b"], concurrency=1)
    assert [request.source for request in server.requests] == ["a"] + ["busy 3 b"] * 3
    server.requests.clear()
    with pytest.raises(NotFound, match="says the fake"):
        bulk(server.target, ["a", "end NOT_FOUND", "b"])
    assert [request.source for request in server.requests] == ["a", "end NOT_FOUND"]


def test_the_status_is_raised_while_requests_are_sent(server: FakeServer, bulk: Bulk) -> None:
    for _ in range(10):
        sources = ("end NOT_FOUND" if n == 5 else "x" * 100 for n in itertools.count())
        with pytest.raises(NotFound):
            bulk(server.target, sources, concurrency=1000)


def test_no_server_there_and_a_deadline(server: FakeServer, bulk: Bulk) -> None:
    with pytest.raises(Unavailable):
        bulk("127.0.0.1:1", itertools.repeat("a"), retry=ONCE)
    with pytest.raises(DeadlineExceeded):
        bulk(server.target, ["hang"], timeout_s=0.1)


def test_a_source_over_the_limit_on_bytes(server: FakeServer, bulk: Bulk) -> None:
    """It fails alone, whether the limit is known yet or not, and no other is answered twice."""
    sources = ["a", "long " * 300_000, *(f"text {n}" for n in range(300)), "late " * 300_000, "b"]
    outcomes = dict(bulk(server.target, sources, concurrency=8, retry=ONCE))
    assert sorted(outcomes) == list(range(len(sources)))
    for number, outcome in outcomes.items():
        if len(sources[number]) > 1000:
            assert isinstance(outcome, InvalidArgument)
            assert (outcome.code, outcome.field) == ("RESOURCE_EXHAUSTED", "source")
            assert "the server takes at most 1,048,576" in outcome.details
        else:
            assert isinstance(outcome, Result) and outcome.text == sources[number].upper()
    assert server.bulk_calls == 2


def test_a_failing_input_is_raised_after_earlier_outcomes(server: FakeServer, bulk: Bulk) -> None:
    def failing() -> Iterator[str]:
        yield "late a"
        yield "b"
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        bulk(server.target, failing())
    assert len(server.requests) == 2


# ---- how much is read, and what is left behind


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "seqserve-bulk"]


def test_an_outcome_is_yielded_while_the_input_blocks(server: FakeServer) -> None:
    answered = threading.Semaphore(0)

    def slow_input() -> Iterator[str]:
        yield "a"
        for source in ("\udce9", "b"):
            assert answered.acquire(timeout=PATIENCE_S)
            yield source

    numbers = []
    with Client(server.target) as client:
        for number, _ in client.generate_bulk(slow_input()):
            numbers.append(number)
            answered.release()
    assert numbers == [0, 1, 2]


def test_an_endless_input_is_read_no_further_than_it_may(server: FakeServer) -> None:
    read: list[int] = []

    def endless() -> Iterator[str]:
        for number in itertools.count():
            read.append(number)
            yield f"{number}"

    with Client(server.target) as client:
        outcomes = client.generate_bulk(endless(), concurrency=3)
        taken = [next(outcomes)[0] for _ in range(5)]
        until(lambda: len(read) >= 4 + 3)
        time.sleep(0.05)
        outcomes.close()
    assert sorted(taken) == list(range(5))
    # The last outcome counts until the next one is requested.
    assert len(read) == 4 + 3


def test_leaving_cancels_the_call_and_ends_the_threads(server: FakeServer) -> None:
    with Client(server.target) as client:
        for number, _ in client.generate_bulk(itertools.chain(["a"], itertools.repeat("hang"))):
            assert number == 0
            crew = threads()
            break
        assert server.cancelled.wait(PATIENCE_S)
        for thread in crew:
            thread.join(PATIENCE_S)
    assert len(crew) == 2 and not any(thread.is_alive() for thread in crew)


def test_leaving_during_the_delay_before_a_retry(server: FakeServer) -> None:
    patient = RetryPolicy(initial_backoff_s=1000.0, max_backoff_s=1000.0)
    with Client(server.target, retry=patient) as client:
        outcomes = client.generate_bulk(["a", "busy 1 b"], concurrency=2)
        next(outcomes)
        crew = threads()
        outcomes.close()
        for thread in crew:
            thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in crew)


def test_a_generator_that_is_never_started_does_nothing(server: FakeServer) -> None:
    with Client(server.target) as client:
        client.generate_bulk(["a"])
        assert threads() == [] == server.requests


def test_closing_the_client_ends_the_bulk_call(server: FakeServer) -> None:
    client = Client(server.target)
    outcomes = client.generate_bulk(["a", "hang"])
    next(outcomes)
    client.close()
    with pytest.raises(Cancelled):
        next(outcomes)


async def test_async_input_is_read_no_further_than_it_may(server: FakeServer) -> None:
    read = itertools.count()

    async def endless() -> AsyncIterator[str]:
        while True:
            yield f"{next(read)}"

    async with AsyncClient(server.target) as client:
        outcomes = client.generate_bulk(endless(), concurrency=3)
        taken = [(await anext(outcomes))[0] for _ in range(5)]
        await asyncio.sleep(0.05)
        await outcomes.aclose()
    assert sorted(taken) == list(range(5))
    # One more source is read and waits for room.
    assert next(read) <= 4 + 3 + 1


async def test_async_leaving_cancels_the_call_and_ends_the_tasks(server: FakeServer) -> None:
    async with AsyncClient(server.target) as client:
        await client.models()
        before = asyncio.all_tasks()
        outcomes = client.generate_bulk(itertools.chain(["a"], itertools.repeat("hang")))
        assert (await anext(outcomes))[0] == 0
        await outcomes.aclose()
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while asyncio.all_tasks() != before:
                await asyncio.sleep(0.01)


async def test_cancelling_the_task_cancels_the_call(server: FakeServer) -> None:
    async with AsyncClient(server.target) as client:
        task = asyncio.create_task(anext(client.generate_bulk(["hang"])))  # type: ignore[arg-type]
        await eventually(lambda: bool(server.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)


async def test_an_async_outcome_is_yielded_while_the_input_blocks(server: FakeServer) -> None:
    answered = asyncio.Event()

    async def slow_input() -> AsyncIterator[str]:
        yield "a"
        await answered.wait()
        yield "b"

    async with AsyncClient(server.target) as client:
        numbers = []
        async for number, _ in client.generate_bulk(slow_input()):
            numbers.append(number)
            answered.set()
    assert numbers == [0, 1]


# ---- servers that break the contract

Serve = Callable[[Iterator[Any]], Iterator[Any]]


class Transport:
    """Serves each call with the next of some functions."""

    def __init__(self, *serve: Serve) -> None:
        self._serve = list(serve)
        self.timeouts_s: list[float | None] = []

    def call(self, method: Method, request: Any, timeout_s: float | None) -> Any:
        assert method is Method.GENERATE_BULK
        self.timeouts_s.append(timeout_s)
        return Served(self._serve.pop(0)(request))

    def close(self) -> None:
        pass


class Served:
    def __init__(self, responses: Iterator[Any]) -> None:
        self._responses = responses

    def __iter__(self) -> Iterator[Any]:
        return self._responses

    def cancel(self) -> None:
        pass


def response(id_: int) -> Any:
    outcome = generation_pb2.Outcome(response=answer("a"))
    return generation_pb2.GenerateBulkResponse(id=id_, outcome=outcome)


def twice(requests: Iterator[Any]) -> Iterator[Any]:
    for request in requests:
        yield from [response(request.id)] * 2


def never_asked(requests: Iterator[Any]) -> Iterator[Any]:
    yield response(next(requests).id + 7)


def too_few(requests: Iterator[Any]) -> Iterator[Any]:
    yield response(next(requests).id)
    list(requests)


def too_early(requests: Iterator[Any]) -> Iterator[Any]:
    yield response(next(requests).id)


def no_hypothesis(requests: Iterator[Any]) -> Iterator[Any]:
    outcome = generation_pb2.Outcome(response=generation_pb2.GenerateResponse())
    yield generation_pb2.GenerateBulkResponse(id=next(requests).id, outcome=outcome)


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (twice, "answered 0, which waits for no answer"),
        (never_asked, "answered 7, which waits for no answer"),
        (too_few, "ended the call before it had answered all"),
        (too_early, "ended the call before it had answered all"),
        (no_hypothesis, "no hypothesis"),
    ],
)
def test_a_response_against_the_contract_is_an_internal_error(serve: Serve, message: str) -> None:
    with (
        Client(transport=Transport(serve)) as client,
        pytest.raises(InternalError, match=message),
    ):
        list(client.generate_bulk(["a", "b"]))


def test_a_call_has_no_deadline_unless_it_is_given_one() -> None:
    def serve(requests: Iterator[Any]) -> Iterator[Any]:
        return (response(request.id) for request in requests)

    def end(requests: Iterator[Any]) -> Iterator[Any]:
        raise UNAVAILABLE
        yield

    transport = Transport(serve, end, serve)
    with Client(transport=transport, timeout_s=7.0, retry=SOON) as client:
        assert len(list(client.generate_bulk(["a"]))) == 1
        assert len(list(client.generate_bulk(["a"], timeout_s=1000.0))) == 1
    none, first, second = transport.timeouts_s
    assert none is None and first is not None and second is not None
    assert 900 < second < first <= 1000.0
