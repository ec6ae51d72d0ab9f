"""Calls over gRPC: tokens, pieces, errors, and that none is repeated."""

from __future__ import annotations

import math
import pickle

import pytest

from seqserve.errors import OptionError, Unreachable
from seqserve.load import grpc_callers
from seqserve.load.grpc_callers import GrpcCaller
from seqserve.requests import generate_request

from ..answers import stream_of
from ..fake_server import FakeServer

REQUEST = generate_request("", model="m", beam_size=2)


def caller_of(target: str, *, streamed: bool = False, token: str | None = None) -> GrpcCaller:
    return GrpcCaller(target, REQUEST, streamed=streamed, token=token)


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer(server: FakeServer, streamed: bool) -> None:
    async with caller_of(server.target, streamed=streamed, token="secret") as caller:
        reply = await caller.send("a b c", math.inf)
    assert (reply.error, reply.tokens, reply.source_tokens) == ("", 3, 4)
    # All messages but the last are pieces.
    pieces = len(stream_of("a b c", REQUEST.options)) - 1
    assert len(reply.gaps_s) == (pieces - 1 if streamed else 0)
    assert not math.isinf(reply.first_at_s)
    [request] = server.requests
    assert (request.source, request.model, request.options.beam_size) == ("a b c", "m", 2)
    assert server.authorizations == ["Bearer secret"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_error_is_told_and_not_tried_again(server: FakeServer, streamed: bool) -> None:
    async with caller_of(server.target, streamed=streamed) as caller:
        reply = await caller.send("busy 9 times", 10.0)
        late = await caller.send("late", 0.0)
    assert (reply.error, reply.details) == (
        "RESOURCE_EXHAUSTED",
        "resource_exhausted, says the fake",
    )
    assert late.error == "DEADLINE_EXCEEDED"
    assert [request.source for request in server.requests].count("busy 9 times") == 1


async def test_another_process_can_call(server: FakeServer) -> None:
    caller: GrpcCaller = pickle.loads(pickle.dumps(caller_of(server.target)))
    async with caller:
        assert not (await caller.send("a", 10.0)).error


async def test_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_callers, "_CONNECT_S", 0.05)
    with pytest.raises(Unreachable, match=r"no connection to localhost:1 within 0\.05 s"):
        await caller_of("localhost:1").__aenter__()


async def test_a_token_does_not_cross_the_network_in_clear() -> None:
    with pytest.raises(OptionError, match="in clear"):
        await caller_of("example.com:1", token="secret").__aenter__()
