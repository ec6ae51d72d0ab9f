"""Answers of a real server: alone and in a batch, as a stream, cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.resources import Resources, until_released

from seqserve import AsyncClient, Client, Result, RetryPolicy
from seqserve.errors import DeadlineExceeded, Overloaded
from seqserve.results import StopReason
from seqserve.v1 import generation_pb2, generation_pb2_grpc

from .endless_model import MAX_SOURCE, MAX_TARGET, NAME
from .process import PATIENCE_S, ServerProcess, until

CALLS = 200
TEXT = "The old train waits for the garden. Nobody paints eleven books? Grüße 🙂 from my neighbour!"
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET, "timeout_s": PATIENCE_S}
ONCE = RetryPolicy(max_attempts=1)


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


@pytest.mark.parametrize("source", [TEXT[:40], "Nobody", "🙂", "Grüße aus Köln"])
def test_pieces_join_to_the_answer(client: Client, source: str) -> None:
    *pieces, last = client.stream(source, max_decoding_length=60)
    assert last.result is not None
    assert last.result.hypotheses == client.generate(source, max_decoding_length=60).hypotheses
    assert "".join(piece.text for piece in pieces) == last.result.text
    shown = tuple(id_ for piece in pieces for id_ in piece.token_ids)
    assert shown
    assert shown == last.result.token_ids[: len(shown)]


def test_result_names_model_and_timings(client: Client) -> None:
    result = client.generate("The coffee tastes good.", model=NAME, max_decoding_length=5)
    assert (result.model, result.version) == (NAME, 1)
    assert result.generated_tokens == len(result.token_ids) == len(result.tokens) <= 5
    timings = result.timings
    parts_ms = timings.queue_ms + timings.encode_ms + timings.decode_ms
    assert 0 < timings.first_token_ms <= timings.total_ms
    assert 0 < parts_ms <= timings.total_ms + 1.0


def test_client_that_leaves_frees_the_slot(server: ServerProcess, client: Client) -> None:
    before = counts(server)
    pieces = client.stream(TEXT[:20], **ENDLESS)
    next(pieces)
    assert server.rows_in_use() == 1
    pieces.close()
    until(server.is_idle)
    until(lambda: counts(server) != before)
    assert changes(server, before) == {"cancelled": 1, "CANCELLED": 1}


def test_closed_client_frees_all_its_slots(server: ServerProcess) -> None:
    before = counts(server)
    with Client(server.target) as client:
        streams = [client.stream(TEXT[:20], **ENDLESS) for _ in range(5)]
        for stream in streams:
            next(stream)
        assert server.rows_in_use() == 5
    until(server.is_idle)
    until(lambda: changes(server, before) == {"cancelled": 5, "CANCELLED": 5})
    for stream in streams:
        stream.close()


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


def test_slow_reader_delays_no_other_call(server: ServerProcess, client: Client) -> None:
    slow = client.stream(TEXT[:20], **ENDLESS)
    next(slow)
    for _ in range(3):
        assert client.generate("Nobody", max_decoding_length=3).generated_tokens <= 3
    slow.close()
    until(server.is_idle)


@pytest.fixture(scope="module")
def narrow(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with one slot and a queue of two, whatever the speed of the machine."""
    options = ("--slots", "1", "--workers", "1", "--max-queue", "2", "--max-queue-s", "3600")
    with ServerProcess(repository, tmp_path_factory.mktemp("narrow"), *options) as server:
        yield server


def test_full_queue_gives_retry_advice(narrow: ServerProcess) -> None:
    before = narrow.value("rejected_total", reason="queue_full", model=NAME)
    with Client(narrow.target, retry=ONCE) as client:
        asyncio.run(fill_and_ask(narrow, client))
    until(narrow.is_idle)
    assert narrow.value("rejected_total", reason="queue_full", model=NAME) == before + 1


async def fill_and_ask(narrow: ServerProcess, client: Client) -> None:
    async with AsyncClient(narrow.target, retry=ONCE) as others:
        running = [asyncio.create_task(others.generate("Nobody", **ENDLESS))]
        # Otherwise all three may be in the queue before the worker looks at it.
        await asyncio.to_thread(until, lambda: narrow.rows_in_use() == 1)
        running += [asyncio.create_task(others.generate("Nobody", **ENDLESS)) for _ in range(2)]
        await asyncio.to_thread(
            until, lambda: (narrow.rows_in_use(), narrow.value("queue_depth")) == (1, 2)
        )
        with pytest.raises(Overloaded) as refused:
            await asyncio.to_thread(client.generate, "Nobody")
        assert refused.value.retry_after_s is not None
        assert 0 < refused.value.retry_after_s <= 30
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def test_deadline_in_the_queue(narrow: ServerProcess) -> None:
    before = counts(narrow)
    with Client(narrow.target) as client:
        running = client.stream("Nobody", **ENDLESS)
        next(running)
        with pytest.raises(DeadlineExceeded):
            client.generate("Nobody", timeout_s=1.0)
        until(lambda: changes(narrow, before) == {"queue": 1, "DEADLINE_EXCEEDED": 1})
        assert narrow.value("queue_depth") == 0
        running.close()
    until(narrow.is_idle)


def test_retries_get_through_a_full_queue(narrow: ServerProcess) -> None:
    """Of eight clients three fit; the others retry as advised, and all are served."""

    async def ask() -> list[Result]:
        async with AsyncClient(narrow.target, timeout_s=PATIENCE_S) as client:
            calls = (client.generate("Nobody", max_decoding_length=300) for _ in range(8))
            return await asyncio.gather(*calls)

    results = asyncio.run(ask())
    assert len({result.hypotheses for result in results}) == 1


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
