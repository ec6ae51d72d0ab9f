"""Open and closed loops, with calls of a server with a set delay."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
import pytest

from seqserve.load import Answer, Reply
from seqserve.load.arrivals import Arrival
from seqserve.load.grpc_callers import GrpcCaller
from seqserve.load.loops import closed_loop, open_loop
from seqserve.requests import generate_request
from seqserve.v1 import generation_pb2, generation_pb2_grpc

PAUSE_S = 0.1
PATIENCE_S = 60.0
LENGTH = 7


class SlowServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Answers after a pause, one token a character; never, where asked to.

    The first answers wait until so many calls are there together as a test says.
    """

    def __init__(self) -> None:
        self.in_flight = self.most_in_flight = 0
        self.pause_s, self.together, self.are_together = PAUSE_S, 1, asyncio.Event()

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> generation_pb2.GenerateResponse:
        assert request.options.max_decoding_length == LENGTH
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        if self.in_flight >= self.together:
            self.are_together.set()
        await self.are_together.wait()
        await asyncio.sleep(600.0 if request.source == "never" else self.pause_s)
        self.in_flight -= 1
        return generation_pb2.GenerateResponse(generated_tokens=len(request.source))

    async def GenerateStream(
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        piece = generation_pb2.Piece(text=request.source)
        yield generation_pb2.GenerateStreamResponse(piece=piece)
        await asyncio.sleep(PAUSE_S)
        result = generation_pb2.GenerateResponse(generated_tokens=len(request.source))
        yield generation_pb2.GenerateStreamResponse(result=result)


def caller_of(address: str, *, streamed: bool = False) -> GrpcCaller:
    request = generate_request("", max_decoding_length=LENGTH)
    return GrpcCaller(address, request, streamed=streamed)


@pytest.fixture
def servicer() -> SlowServicer:
    return SlowServicer()


@pytest.fixture
async def address(servicer: SlowServicer) -> AsyncIterator[str]:
    server = grpc.aio.server()
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.mark.slow
async def test_open_loop_does_not_wait_for_answers(address: str, servicer: SlowServicer) -> None:
    arrivals = [Arrival(number * 0.005, "word") for number in range(10)]
    servicer.together = 10
    async with caller_of(address) as caller:
        answers = await open_loop(caller, arrivals, PATIENCE_S)
    assert servicer.most_in_flight == 10
    assert [answer.due_s for answer in answers] == [arrival.due_s for arrival in arrivals]
    assert all(answer.total_s >= PAUSE_S - 0.005 and answer.tokens == 4 for answer in answers)
    assert all(answer.first_s <= answer.total_s for answer in answers)


@pytest.mark.slow
async def test_time_counts_from_when_a_request_was_due(address: str) -> None:
    async with caller_of(address) as caller:
        answers = await open_loop(caller, [Arrival(-1.0, "late")], PATIENCE_S)
    assert answers[0].sent_s >= 1.0
    assert answers[0].total_s >= 1.0 + PAUSE_S - 0.005


@pytest.mark.slow
async def test_caller_gives_up(address: str) -> None:
    arrivals = [Arrival(0.0, "never"), Arrival(0.0, "word")]
    async with caller_of(address) as caller:
        given_up, answered = await open_loop(caller, arrivals, 20 * PAUSE_S)
    assert given_up.error == "DEADLINE_EXCEEDED"
    assert given_up.total_s == given_up.first_s == float("inf")
    assert not answered.error


@pytest.mark.slow
async def test_first_token_of_a_stream(address: str) -> None:
    async with caller_of(address, streamed=True) as caller:
        [answer] = await open_loop(caller, [Arrival(0.0, "word")], PATIENCE_S)
    assert answer.tokens == 4
    assert answer.total_s - answer.first_s >= PAUSE_S - 0.01


@pytest.mark.slow
async def test_closed_loop_keeps_its_number_in_flight(address: str, servicer: SlowServicer) -> None:
    servicer.together = 2
    async with caller_of(address) as caller:
        answers = await closed_loop(caller, ["a", "bb", "ccc", "dddd", "eeeee"], 2)
    assert servicer.most_in_flight == 2
    assert sorted(answer.tokens for answer in answers) == [1, 2, 3, 4, 5]
    assert not any(answer.error for answer in answers)


@pytest.mark.slow
async def test_open_loop_with_a_limit_counts_its_wait(address: str, servicer: SlowServicer) -> None:
    ended: list[Answer] = []
    # So long that a busy machine makes nothing as late.
    pause_s = 2.0
    servicer.together, servicer.pause_s = 2, pause_s
    async with caller_of(address) as caller:
        answers = await open_loop(
            caller, [Arrival(0.0, "word")] * 4, PATIENCE_S, in_flight=2, answered=ended.append
        )
    assert servicer.most_in_flight == 2
    assert max(answer.total_s for answer in answers) >= 2 * pause_s - 0.01
    assert max(answer.sent_s for answer in answers) >= pause_s - 0.01
    # The generator itself was not late.
    assert max(answer.late_s for answer in answers) < pause_s - 0.01
    assert sorted(ended, key=id) == sorted(answers, key=id)


class Late:
    """Answers nothing in the time that is left."""

    async def __aenter__(self) -> Late:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def send(self, source: str, timeout_s: float) -> Reply:
        return Reply(error="DEADLINE_EXCEEDED", details=f"{timeout_s} s")


async def test_a_request_that_waited_too_long_has_no_time_left() -> None:
    [answer] = await open_loop(Late(), [Arrival(-5.0, "a")], 1.0)
    assert (answer.error, answer.details) == ("DEADLINE_EXCEEDED", "0.0 s")
    assert answer.total_s == math.inf
