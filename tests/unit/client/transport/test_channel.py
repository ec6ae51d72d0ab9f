import asyncio
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
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
    OptionError,
    Overloaded,
    PermissionDenied,
    RetryPolicy,
    StopReason,
    Unauthenticated,
    Unavailable,
    Unreachable,
)

from ..fake_server import PATIENCE_S, FakeServer
from ..sessions import ONCE, SOON, Connect, listed


def test_verbs(server: FakeServer, connect: Connect) -> None:
    client = connect(server.target)
    result = client.generate("good day", model="m", version=7, max_decoding_length=5)
    pieces = client.stream("good day")
    names = [model.name for model in client.models()]
    score = client.score("good day", "Guten Tag", model="m")
    attention = client.attention("good day", version=3)
    assert (result.text, result.model, result.version) == ("GOOD DAY", "m", 7)
    assert result.stop_reason is StopReason.EOS
    assert "".join(piece.text for piece in pieces) == "GOOD DAY"
    assert pieces[-1].result is not None and pieces[-1].result.text == "GOOD DAY"
    assert names == ["capitals", "broken"]
    assert (score.model, score.score) == ("m", -3.0)
    assert (attention.version, attention.target_tokens) == (3, ("GOOD", "DAY", "</s>"))
    assert client.model().is_default
    assert client.model("broken", 1).state_reason.startswith("decoder.onnx")
    assert server.requests[0].options.max_decoding_length == 5
    assert not server.requests[0].options.HasField("min_decoding_length")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INVALID_ARGUMENT", InvalidArgument),
        ("NOT_FOUND", NotFound),
        ("RESOURCE_EXHAUSTED", Overloaded),
        ("DEADLINE_EXCEEDED", DeadlineExceeded),
        ("CANCELLED", Cancelled),
        ("UNAUTHENTICATED", Unauthenticated),
        ("PERMISSION_DENIED", PermissionDenied),
        ("UNAVAILABLE", Unavailable),
        ("INTERNAL", InternalError),
        ("UNIMPLEMENTED", CallError),
    ],
)
def test_errors(server: FakeServer, connect: Connect, code: str, kind: type[CallError]) -> None:
    client = connect(server.target, retry=ONCE)
    for call in (client.generate, client.stream):
        with pytest.raises(CallError) as failure:
            call(f"fail {code}")
        error = failure.value
        assert type(error) is kind
        assert str(error) == f"{code}: {code.lower()}, says the fake"
        assert error.field == ("source" if kind is InvalidArgument else "")
        waits = kind in (Overloaded, Unavailable)
        assert error.retry_after_s == (pytest.approx(0.02) if waits else None)


def test_a_call_that_another_side_cancels_is_retried(server: FakeServer, connect: Connect) -> None:
    assert connect(server.target).generate("cancelled 2 a").text == "CANCELLED 2 A"


def test_leaving_a_stream_cancels_the_call(server: FakeServer) -> None:
    with Client(server.target) as client:
        for piece in client.stream("hang"):
            assert piece.text == "H"
            break
        assert server.cancelled.wait(PATIENCE_S)


async def test_leaving_or_closing_an_async_stream_cancels_the_call(server: FakeServer) -> None:
    async with AsyncClient(server.target) as client:
        async for piece in client.stream("hang"):
            assert piece.text == "H"
            break
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)
        server.cancelled.clear()
        pieces = client.stream("hang")
        await anext(pieces)
        await pieces.aclose()
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)


async def test_cancelling_the_task_cancels_the_call(server: FakeServer) -> None:
    async with AsyncClient(server.target) as client:
        task = asyncio.create_task(client.generate("hang"))
        await eventually(lambda: bool(server.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)


@pytest.mark.parametrize("verb", ["generate", "stream"])
def test_deadline(server: FakeServer, connect: Connect, verb: str) -> None:
    client = connect(server.target, timeout_s=math.inf)

    def arrives() -> bool:
        with pytest.raises(DeadlineExceeded):
            getattr(client, verb)("hang", timeout_s=0.1)
        return bool(server.requests)

    # On a busy machine a deadline may pass before the server has the call.
    until(arrives)
    assert server.cancelled.wait(PATIENCE_S)


def test_leaving_many_cancels_what_is_under_way(server: FakeServer) -> None:
    with Client(server.target) as client:
        for result in client.generate_many(["one", "hang two"], concurrency=2):
            assert result.text == "ONE"
            until(lambda: len(server.requests) == 2)
            break
        assert server.cancelled.wait(PATIENCE_S)


LATER = RetryPolicy(initial_backoff_s=10 * PATIENCE_S, max_backoff_s=10 * PATIENCE_S)
"""A delay so long that only a failing test waits for it."""
WAITS = pytest.mark.parametrize("text", ["hang", "busy 1"], ids=["in progress", "before a retry"])


@WAITS
def test_closing_the_client_ends_its_calls(server: FakeServer, text: str) -> None:
    client = Client(server.target, timeout_s=math.inf, retry=LATER)
    calls: list[Callable[[], object]] = [
        lambda: client.generate(f"{text} a"),
        lambda: list(client.stream(f"{text} b")),
        lambda: list(client.generate_many([f"{text} c"])),
        lambda: list(client.generate_bulk([f"{text} d"])),
    ]
    with ThreadPoolExecutor(len(calls)) as threads:
        ends = [threads.submit(call) for call in calls]
        until(lambda: len(server.requests) == len(calls))
        client.close()
        assert [type(end.exception(PATIENCE_S)) for end in ends] == [Cancelled] * len(calls)


@WAITS
async def test_closing_the_async_client_ends_its_calls(server: FakeServer, text: str) -> None:
    client = AsyncClient(server.target, timeout_s=math.inf, retry=LATER)
    streams = (client.stream(f"{text} b"), client.generate_many([f"{text} c"]))
    bulk = listed(client.generate_bulk([f"{text} d"]))
    begun = (client.generate(f"{text} a"), *map(listed, streams), bulk)
    calls = [asyncio.ensure_future(call) for call in begun]
    await eventually(lambda: len(server.requests) == len(calls))
    await client.close()
    ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE_S)
    assert [type(end) for end in ends] == [Cancelled] * len(calls)


def test_many_are_under_way_at_once_and_come_in_order(server: FakeServer, connect: Connect) -> None:
    sources = ["late 0", *(f"n {number}" for number in range(1, 60)), "late 60"]
    results = connect(server.target).generate_many(sources, concurrency=8)
    assert [result.text for result in results] == [source.upper() for source in sources]
    assert 1 < server.most_at_once <= 8


def test_a_closed_client_says_so(server: FakeServer, connect: Connect) -> None:
    client = connect(server.target)
    client.models()
    client.close()
    with pytest.raises(Cancelled, match="the client is closed"):
        client.generate("too late")


@pytest.mark.parametrize("target", ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2", "no-host.invalid:1"])
def test_no_server_there(connect: Connect, target: str) -> None:
    with pytest.raises(Unreachable):
        connect(target, retry=ONCE).generate("anybody?")


def test_a_message_over_the_size_limit_is_not_a_full_queue(server: FakeServer) -> None:
    with Client(server.target) as client, pytest.raises(InvalidArgument, match="source: its req"):
        client.generate("long " * 300_000)
    with (
        Client(server.target, max_message_bytes=100) as client,
        pytest.raises(InvalidArgument, match="max_message_bytes of this client is 100"),
    ):
        client.generate("long " * 100)


def test_several_servers_share_the_calls(server: FakeServer) -> None:
    other = FakeServer()
    try:
        with Client(f"{server.target}, {other.target}") as client:
            while not (server.requests and other.requests):
                client.generate("whose turn?")
    finally:
        other.stop()


def test_a_dead_server_among_several_is_skipped(server: FakeServer) -> None:
    with Client(f"127.0.0.1:1,{server.target}") as client:
        assert [client.generate(f"{n}").text for n in range(5)] == list("01234")


def test_an_http_proxy_does_not_get_local_calls(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Client(server.target, retry=ONCE) as client:
        assert client.generate("direct").text == "DIRECT"


trace: ContextVar[str] = ContextVar("trace", default="none")


def traced() -> list[tuple[str, str]]:
    return [("traceparent", trace.get())]


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("metadata", [("a", "b")], r".* is not a function that returns pairs"),
        ("tls", True, r"True is not TLS\(\.\.\.\)"),
        ("tls", "ca.pem", r"'ca\.pem' is not TLS\(\.\.\.\)"),
        ("token", 5, "is empty or .* is no text"),
        ("connections", 0, "0 is not a whole number"),
        ("connections", 1.5, "1.5 is not a whole number"),
        ("retry", 0, r"0 is not RetryPolicy\(\.\.\.\)"),
    ],
)
def test_settings_of_a_wrong_type_are_named(setting: str, value: Any, reason: str) -> None:
    with pytest.raises(OptionError, match=f"^{setting}: {reason}"):
        Client("localhost:1", **{setting: value})


def test_metadata_goes_with_every_attempt_and_token(server: FakeServer, connect: Connect) -> None:
    numbers = itertools.count()
    given: Any = {"token": "abc", "metadata": lambda: [("x-attempt", str(next(numbers)))]}
    client = connect(server.target, retry=SOON, **given)
    client.generate("busy 2 now")
    client.stream("once")
    assert [sent["x-attempt"] for sent in server.metadata] == ["0", "1", "2", "3"]
    assert server.authorizations == ["Bearer abc"] * 4


def test_the_calls_of_many_run_in_the_context_of_their_caller(server: FakeServer) -> None:
    token = trace.set("the caller's")
    with Client(server.target, metadata=traced) as client:
        list(client.generate_many(["one", "two", "three"], concurrency=2))
    trace.reset(token)
    assert [sent["traceparent"] for sent in server.metadata] == ["the caller's"] * 3


def test_metadata_that_grpc_does_not_send_is_named(server: FakeServer, connect: Connect) -> None:
    client = connect(server.target, metadata=lambda: [("X-Request-Id", "a")])
    for call in (client.generate, client.stream, lambda text: client.generate_bulk([text])):
        with pytest.raises(InvalidArgument, match="metadata: the key 'X-Request-Id'"):
            call("a")
    assert server.requests == []
