"""Memory of the shipped server while callers ask for the most, and do not read their answers."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from tests.resources import anonymous_mb, memory_mb
from tests.support.frames import (
    END_STREAM,
    HELLO,
    NO_WINDOW,
    Kind,
    call,
    connected,
    frame,
    message,
    opened,
    reset,
)
from tests.support.process import ROOT, ServerProcess, eventually, until

from seqserve.v1 import generation_pb2, generation_pb2_grpc

NAME = "en-de"
VERSIONS = (2, 4)
"""Those that a server loads by default."""
SERVICE = "/seqserve.v1.GenerationService/"
LONG = "The old train waits near the quiet garden and nobody knows why. " * 7
"""Nearly as many tokens as the model reads."""
ALL = {
    "segmentation": "none",
    "return_attention": True,
    "return_top_tokens": 64,
    "return_token_scores": True,
}
WIDEST = {"beam_size": 32, "num_hypotheses": 32, **ALL}
CALLERS = 4
"""Their shares together are nearly all of the memory for answers."""
AT_ONCE = 4
"""Calls that one makes before it waits until they are answered, so that the queue takes them."""
ROOM = 0.75
"""Part of the limit that the worst calls may use."""
KEPT_MB = 24.0
"""What allocators may keep of each idle process."""


def options(**given: Any) -> generation_pb2.GenerationOptions:
    return generation_pb2.GenerationOptions(
        min_decoding_length=128, max_decoding_length=128, **given
    )


def limit_mb() -> float:
    """The memory that docker-compose.yml gives to the server, in MiB."""
    found = re.search(r"SEQSERVE_MEMORY:-(\d+)g", (ROOT / "docker-compose.yml").read_text())
    assert found
    return 1024.0 * int(found[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The shipped models with all defaults; callers say who they are."""
    folder = tmp_path_factory.mktemp("answers")
    variables = {"SEQSERVE_CALLER_METADATA": "x-caller", "SEQSERVE_LOG_LEVEL": "warning"}
    with ServerProcess(ROOT / "models", folder, environment=variables) as server:
        yield server
        assert "Traceback" not in server.stderr


class Unread:
    """Calls of one connection, whose answers have no window."""

    def __init__(self, server: ServerProcess, connection: socket.socket, caller: str) -> None:
        self._server = server
        self._connection = connection
        self._caller = caller
        self._streams = itertools.count(1, 2)

    def call(self, method: str, request: Message) -> int:
        """Makes a call and gives its stream."""
        stream = next(self._streams)
        headers = call(**{":path": SERVICE + method, "x_caller": self._caller})
        data = message(request.SerializeToString())
        body = frame(Kind.DATA, data, flags=END_STREAM, stream=stream)
        self._connection.sendall(opened(stream, headers) + body)
        return stream

    def fill_share(self, version: int) -> list[int]:
        """Asks for the largest answers until a call waits for memory; gives the streams."""
        waiting = self._server.value("answers_waiting")
        streams: list[int] = []

        def is_full() -> bool:
            if self._server.is_idle():
                streams.extend(self.call("Attention", attention(version)) for _ in range(AT_ONCE))
            return self._server.value("answers_waiting") > waiting

        until(is_full)
        return streams

    def cancel(self, stream: int) -> None:
        self._connection.sendall(reset(stream))


@contextlib.contextmanager
def unread(server: ServerProcess, caller: str) -> Iterator[Unread]:
    """Connects a caller that reads none of its answers."""
    with connected(server.target) as connection:
        drained = threading.Thread(target=_drain, args=(connection,), daemon=True)
        drained.start()
        connection.sendall(HELLO + NO_WINDOW)
        yield Unread(server, connection, caller)
        connection.shutdown(socket.SHUT_RDWR)
        drained.join()


def _drain(connection: socket.socket) -> None:
    """Reads what needs no window, so that the server can send it."""
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


class Peak:
    """The most memory of a server, over some time."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.megabytes = 0.0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            self.megabytes = max(self.megabytes, memory_mb(self._server))


def attention(version: int) -> generation_pb2.AttentionRequest:
    """The largest answer for the least work: 2 MB."""
    return generation_pb2.AttentionRequest(model=NAME, version=version, source=LONG, target=LONG)


async def test_cancelled_batches_give_their_memory_back(server: ServerProcess) -> None:
    before_mb = anonymous_mb(server.pid)
    batch = generation_pb2.GenerateBatchRequest(
        model=NAME,
        version=2,
        sources=[LONG] * 64,
        options=options(**ALL),
    )
    async with grpc.aio.insecure_channel(server.target) as channel:
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        calls = [
            stub.GenerateBatch(batch, metadata=[("x-caller", str(number))]) for number in range(3)
        ]
        enough_mb = before_mb + 2 * KEPT_MB
        await eventually(lambda: anonymous_mb(server.pid) > enough_mb)
        for each in calls:
            each.cancel()
    began_s = time.monotonic()
    await eventually(lambda: server.value("answer_bytes") == 0)
    await eventually(lambda: anonymous_mb(server.pid) < before_mb + KEPT_MB)
    print(f"\nback after {time.monotonic() - began_s:.1f} s")


def test_the_worst_permitted_calls_fit_the_memory_of_the_compose_file(
    server: ServerProcess,
) -> None:
    # Pages of the caches stay once they were used.
    idle_mb = memory_mb(server) + server.value("cache_bytes") / 1e6
    with Peak(server) as peak, contextlib.ExitStack() as callers:
        widest = callers.enter_context(unread(server, "widest"))
        for version in VERSIONS * 2:
            request = generation_pb2.GenerateRequest(
                model=NAME, version=version, source=LONG, options=options(**WIDEST)
            )
            widest.call("Generate", request)
        until(lambda: server.rows_in_use() > 0)
        for number in range(CALLERS):
            caller = callers.enter_context(unread(server, f"caller-{number}"))
            caller.fill_share(VERSIONS[number % 2])
        # What had memory is answered then, and waits to be read.
        until(server.is_idle)
        held_mb = server.value("answer_bytes") / 1e6
    print(f"\n{peak.megabytes:.0f} MB at most, {held_mb:.0f} MB of answers reserved")
    assert held_mb > 150
    assert peak.megabytes < ROOM * limit_mb()
    # The connections are gone, and so is what was kept for them.
    until(lambda: server.value("answer_bytes") == 0)
    until(lambda: memory_mb(server) < idle_mb + 3 * KEPT_MB)


def test_a_caller_that_does_not_read_holds_its_share_and_others_are_served(
    server: ServerProcess,
) -> None:
    with unread(server, "unread") as caller:
        first, *_ = caller.fill_share(version=2)
        until(server.is_idle)
        assert server.value("answer_bytes") < 128e6
        with grpc.insecure_channel(server.target) as channel:
            stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
            assert len(stub.Attention(attention(2), metadata=[("x-caller", "other")]).cross.weights)
        # A call that is over lets the next one begin.
        waiting = server.value("answers_waiting")
        caller.cancel(first)
        until(lambda: server.value("answers_waiting") < waiting)
    until(lambda: server.value("answers_waiting") == 0)


def test_an_answer_that_never_fits_is_refused_with_the_option_that_makes_it_large(
    server: ServerProcess,
) -> None:
    batch = generation_pb2.GenerateBatchRequest(
        model=NAME, sources=["Nobody waits."] * 1024, options=options(**ALL)
    )
    with grpc.insecure_channel(server.target) as channel:
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refusal:
            stub.GenerateBatch(batch)
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.value.details().startswith("options.return_top_tokens: makes the answers to")
