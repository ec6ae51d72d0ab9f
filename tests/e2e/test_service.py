"""Answers of a real server: alone and in a batch, as a stream, cut short."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.resources import Resources, until_released

from seqserve import AsyncClient, Client, Result
from seqserve.errors import DeadlineExceeded
from seqserve.results import StopReason
from seqserve.v1 import generation_pb2, generation_pb2_grpc

from .endless_model import MAX_SOURCE, MAX_TARGET, NAME
from .process import PATIENCE_S, ServerProcess, until

CALLS = 200
TEXT = "The old train waits for the garden. Nobody paints eleven books? Grüße 🙂 from my neighbour!"
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET, "timeout_s": PATIENCE_S}


def source_of(number: int) -> str:
    """Sources of all lengths, with different beginnings."""
    start = number % 7
    return TEXT[start : start + 1 + number * (len(TEXT) - 7) // CALLS]


def longest_of(number: int) -> int:
    return 1 + number * 7 % 40


def test_in_a_batch_as_alone(server: ServerProcess, client: Client) -> None:
    alone = [
        client.generate(source_of(number), max_decoding_length=longest_of(number))
        for number in range(CALLS)
    ]
    lengths = {result.source_tokens for result in alone}
    assert min(lengths) <= 2
    assert max(lengths) > MAX_SOURCE // 2
    assert {result.stop_reason for result in alone} == {StopReason.EOS, StopReason.LENGTH}

    steps, tokens = steps_and_tokens(server)
    together = asyncio.run(all_at_once(server.target))
    for before, after in zip(alone, together, strict=True):
        # Text, tokens, stop reason, and the score to its last bit.
        assert after.hypotheses == before.hypotheses
    steps_after, tokens_after = steps_and_tokens(server)
    assert tokens_after - tokens > steps_after - steps, "no step had more than one row"
    assert server.is_idle()


async def all_at_once(target: str) -> list[Result]:
    async with AsyncClient(target, timeout_s=PATIENCE_S) as client:
        calls = (
            client.generate(source_of(number), max_decoding_length=longest_of(number))
            for number in range(CALLS)
        )
        return await asyncio.gather(*calls)


def steps_and_tokens(server: ServerProcess) -> tuple[float, float]:
    return server.value("batch_rows_count"), server.value("batch_rows_sum")


def test_client_that_leaves_frees_the_slot(server: ServerProcess, client: Client) -> None:
    before = counts(server)
    pieces = client.stream(TEXT[:20], **ENDLESS)
    next(pieces)
    assert server.rows_in_use() == 1
    pieces.close()
    until(server.is_idle)
    until(lambda: counts(server) != before)
    assert changes(server, before) == {"cancelled": 1, "CANCELLED": 1}


# Time enough to begin on a slow machine. gRPC rounds the second timeout up by 4 ms, so the client's
# clock runs out first.
@pytest.mark.parametrize("timeout_s", [1.0, 1.0061])
def test_deadline_in_decode_frees_the_slot(
    server: ServerProcess, client: Client, timeout_s: float
) -> None:
    before = counts(server)
    with pytest.raises(DeadlineExceeded):
        client.generate(TEXT[:20], **ENDLESS | {"timeout_s": timeout_s})
    until(server.is_idle)
    until(lambda: changes(server, before) == {"decode": 1, "DEADLINE_EXCEEDED": 1})


def test_calls_leave_nothing_behind(server: ServerProcess, client: Client) -> None:
    def use() -> None:
        for number in range(20):
            client.generate(source_of(number), max_decoding_length=3)
            pieces = client.stream(TEXT[:20], **ENDLESS)
            next(pieces)
            pieces.close()
        until(server.is_idle)

    # Pools of threads are started.
    use()
    before = Resources.of(server)
    use()
    # There were more calls than threads that may be added.
    until_released(server, before)


def counts(server: ServerProcess) -> dict[str, float]:
    """Counters of calls that end early."""
    codes = ("CANCELLED", "DEADLINE_EXCEEDED")
    return {
        "cancelled": server.value("cancelled_total"),
        "queue": server.value("deadline_exceeded_total", where="queue"),
        "decode": server.value("deadline_exceeded_total", where="decode"),
        **{code: server.value("requests_total", code=code, model=NAME) for code in codes},
    }


def changes(server: ServerProcess, before: dict[str, float]) -> dict[str, float]:
    after = counts(server)
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def test_leaving_an_unread_stream_cancels_the_call(server: ServerProcess) -> None:
    before = server.calls_by_code()
    options = generation_pb2.GenerationOptions(min_decoding_length=3000, max_decoding_length=3000)
    # So small a window that the server has to wait for the client.
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 14)]
    with grpc.insecure_channel(server.target, narrow) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        request = generation_pb2.GenerateRequest(source="Nobody", options=options)
        call = stub.GenerateStream(request)
        next(call)
        until(server.is_idle)
        call.cancel()
    until(lambda: server.calls_by_code() - before == {"CANCELLED": 1})
