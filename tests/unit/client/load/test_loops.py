"""The load generator: arrivals, and calls of a server with a set delay."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import pairwise
from typing import Any

import grpc
import pytest
from bench.load.generator import (
    MAX_DECODING_LENGTH,
    Arrival,
    Caller,
    check_answers,
    closed_loop,
    draw_for,
    open_loop,
    poisson,
)

from seqserve.v1 import generation_pb2, generation_pb2_grpc

PAUSE_S = 0.1
SOURCES = ["one", "two", "three"]


def test_same_seed_same_arrivals() -> None:
    assert poisson(50.0, 5.0, SOURCES, "a") == poisson(50.0, 5.0, SOURCES, "a")
    assert poisson(50.0, 5.0, SOURCES, "a") != poisson(50.0, 5.0, SOURCES, "b")


def test_gaps_of_arrivals_are_exponential() -> None:
    arrivals = poisson(100.0, 200.0, SOURCES, 1)
    due_s = [arrival.due_s for arrival in arrivals]
    gaps = [later - earlier for earlier, later in pairwise(due_s)]
    assert due_s[0] > 0.0 and min(gaps) > 0.0 and due_s[-1] < 200.0
    assert statistics.fmean(gaps) == pytest.approx(0.01, rel=0.03)
    # Gaps of a steady stream would not vary as much as their mean.
    assert statistics.stdev(gaps) == pytest.approx(0.01, rel=0.05)
    assert {arrival.source for arrival in arrivals} == set(SOURCES)


def test_load_needs_no_torch_and_no_server() -> None:
    program = (
        "import bench.load.generator, sys;"
        "sys.exit(bool({'torch', 'seqserve_server'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


class SlowServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Answers after a pause, one token a character; never, where asked to."""

    def __init__(self) -> None:
        self.in_flight = self.most_in_flight = 0

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> generation_pb2.GenerateResponse:
        assert request.options.max_decoding_length == MAX_DECODING_LENGTH
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        await asyncio.sleep(60.0 if request.source == "never" else PAUSE_S)
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
    async with Caller(address) as caller:
        answers = await open_loop(caller, arrivals, 10.0)
    assert servicer.most_in_flight == 10
    assert [answer.due_s for answer in answers] == [arrival.due_s for arrival in arrivals]
    assert all(answer.total_s >= PAUSE_S - 0.005 and answer.tokens == 4 for answer in answers)
    assert all(answer.first_s <= answer.total_s for answer in answers)


@pytest.mark.slow
async def test_time_counts_from_when_a_request_was_due(address: str) -> None:
    async with Caller(address) as caller:
        answers = await open_loop(caller, [Arrival(-1.0, "late")], 10.0)
    assert answers[0].sent_s >= 1.0
    assert answers[0].total_s >= 1.0 + PAUSE_S - 0.005


@pytest.mark.slow
async def test_caller_gives_up(address: str) -> None:
    arrivals = [Arrival(0.0, "never"), Arrival(0.0, "word")]
    async with Caller(address) as caller:
        given_up, answered = await open_loop(caller, arrivals, 4 * PAUSE_S)
    assert given_up.error == "DEADLINE_EXCEEDED"
    assert given_up.total_s == given_up.first_s == float("inf")
    assert not answered.error
    with pytest.raises(SystemExit, match="calls failed: DEADLINE_EXCEEDED"):
        check_answers([given_up, answered])


@pytest.mark.slow
async def test_first_token_of_a_stream(address: str) -> None:
    async with Caller(address, streamed=True) as caller:
        [answer] = await open_loop(caller, [Arrival(0.0, "word")], 10.0)
    assert answer.tokens == 4
    assert answer.total_s - answer.first_s >= PAUSE_S - 0.01


@pytest.mark.slow
async def test_closed_loop_keeps_its_number_in_flight(address: str, servicer: SlowServicer) -> None:
    async with Caller(address) as caller:
        answers = await closed_loop(caller, ["a", "bb", "ccc", "dddd", "eeeee"], 2)
    assert servicer.most_in_flight == 2
    assert sorted(answer.tokens for answer in answers) == [1, 2, 3, 4, 5]
    check_answers(answers)


def test_sources_of_a_time() -> None:
    first, second = (draw_for(["a", "b", "c"], 30.0, 1) for _ in range(2))
    assert [next(first) for _ in range(20)] == [next(second) for _ in range(20)]
    assert list(draw_for(["a"], 0.0, 1)) == []
