"""Clients that die, vanish or do not read: their resources are freed, others are not affected."""

import asyncio
import sys
import time
from typing import Any

import grpc
import pytest
from tests.resources import Resources, until_released
from tests.support.process import PATIENCE_S, ServerProcess, eventually

from seqserve.v1 import generation_pb2, generation_pb2_grpc

from . import caller
from .conftest import SLOTS
from .dead_network import Network
from .unaffected_client import CallAccounts, UnaffectedClient

ROUNDS = 2
"""Repetitions; the first one fills pools and arenas, so nothing may grow after it."""
STREAMS = 24
"""Streams of each client, more than there are slots."""
UNREAD, UNREAD_LENGTH = 40, 3000
"""Unread answers, and the tokens of each: more than a window holds, even if many tokens
share one message."""
MOST_UNREAD_KIB, MOST_UNREAD_BULK_MB = 512, 16.0
SOON_S = 10.0
"""On a busy machine even a scrape takes seconds."""
# The server pings a silent client after 60 s and closes the connection 20 s later.
GIVEN_UP_S = (60.0, 100.0)
VANISHING_LENGTH = 2500

# Small, fixed windows, so that a client that does not read receives little.
NARROW = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 14),
]

pytestmark = pytest.mark.chaos


def request(length: int, source: str = "Nobody") -> generation_pb2.GenerateRequest:
    lengths = {"min_decoding_length": length, "max_decoding_length": length}
    options = generation_pb2.GenerationOptions(**lengths)
    return generation_pb2.GenerateRequest(source=source, options=options)


async def rest_of(call: Any) -> list[Any]:
    messages = []
    while (message := await call.read()) is not grpc.aio.EOF:
        messages.append(message)
    return messages


async def test_killed_clients_leave_nothing_behind(server: ServerProcess) -> None:
    accounts = CallAccounts(server)
    freed_s = []
    async with UnaffectedClient(server.target) as unaffected:
        for number in range(ROUNDS):
            if number == 1:
                before = await asyncio.to_thread(Resources.of, server)
            command = [sys.executable, caller.__file__, server.target, str(STREAMS)]
            callers = [await asyncio.create_subprocess_exec(*command) for _ in range(2)]
            await eventually(lambda: server.under_way() >= 2 * STREAMS)
            for each in callers:
                each.kill()
            killed_s = time.perf_counter()
            # One row may be the unaffected's.
            await eventually(lambda: server.under_way() <= 1)
            freed_s.append(time.perf_counter() - killed_s)
            for each in callers:
                await each.wait()
        await unaffected.usual_s(20)
    after = until_released(server, before)
    print(f"\nslots free {max(freed_s):.2f} s after the kill; {before}; then {after}")
    assert max(freed_s) < SOON_S
    accounts.until(OK=unaffected.answered, CANCELLED=ROUNDS * 2 * STREAMS)


async def test_clients_that_vanish_are_disconnected(server: ServerProcess) -> None:
    accounts = CallAccounts(server)
    async with UnaffectedClient(server.target) as unaffected, Network(server.target) as network:
        async with grpc.aio.insecure_channel(server.target, NARROW) as channel:
            # Cache pages that they touched stay allocated.
            calls = await begun(channel)
            await eventually(lambda: server.under_way() <= 1)
        before = await asyncio.to_thread(Resources.of, server)
        async with grpc.aio.insecure_channel(network.target, NARROW) as channel:
            calls = await begun(channel)
            network.cut()
            cut_s = time.perf_counter()
            lost = 2 * len(calls)
            await eventually(lambda: accounts.ended()["CANCELLED"] == lost, 2 * GIVEN_UP_S[1])
            given_up_s = time.perf_counter() - cut_s
            # To this end the connection looks intact.
            assert not any(call.done() for call in calls)
    after = until_released(server, before)
    print(f"\ngiven up {given_up_s:.0f} s after the last word; {before}; then {after}")
    assert GIVEN_UP_S[0] < given_up_s < GIVEN_UP_S[1]
    accounts.until(OK=unaffected.answered, CANCELLED=lost)


async def begun(channel: Any) -> list[Any]:
    """Begins streams and a bulk call and reads one message of each."""
    stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
    calls = [stub.GenerateStream(request(VANISHING_LENGTH)) for _ in range(SLOTS - 4)]
    bulk = stub.GenerateBulk()
    await bulk.write(generation_pb2.GenerateBulkRequest(id=1, request=request(1)))
    calls.append(bulk)
    for call in calls:
        await call.read()
    return calls


async def test_clients_that_do_not_read_cost_little(server: ServerProcess) -> None:
    accounts = CallAccounts(server)
    async with UnaffectedClient(server.target) as unaffected:
        usual_s = await unaffected.usual_s(20)
        for number in range(ROUNDS):
            if number == 1:
                before = await asyncio.to_thread(Resources.of, server)
            async with grpc.aio.insecure_channel(server.target, NARROW) as channel:
                stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
                streams = [stub.GenerateStream(request(UNREAD_LENGTH)) for _ in range(UNREAD)]
                firsts = [await stream.read() for stream in streams]
                # Rows do not wait for readers.
                await eventually(lambda: server.under_way() <= 1)
                full = await asyncio.to_thread(Resources.of, server)
                beside_s = await unaffected.usual_s(20)
                for stream in streams[::2]:
                    stream.cancel()
                # The other clients read on and get every token.
                for first, stream in zip(firsts[1::2], streams[1::2], strict=True):
                    *pieces, last = [first, *await rest_of(stream)]
                    text = "".join(piece.piece.text for piece in pieces)
                    assert last.result.hypotheses[0].text == text
                    assert last.result.generated_tokens == UNREAD_LENGTH
    after = until_released(server, before)
    kib = (full.megabytes - before.megabytes) * 1024 / UNREAD
    print(
        f"\n{kib:.0f} KiB for each unread answer of {UNREAD_LENGTH} tokens; others took"
        f" {beside_s * 1e3:.0f} ms, without {usual_s * 1e3:.0f} ms; {before}; then {after}"
    )
    assert kib < MOST_UNREAD_KIB
    assert beside_s < 2.0 * usual_s + 0.1
    half = ROUNDS * UNREAD // 2
    accounts.until(OK=unaffected.answered + half, CANCELLED=half)


async def test_bulk_client_that_does_not_read_is_not_read_from(server: ServerProcess) -> None:
    accounts = CallAccounts(server)
    for number in range(ROUNDS):
        if number == 1:
            before = Resources.of(server)
        sent, unread = await bulk_read_late(server)
    after = until_released(server, before)
    print(f"\n{sent} sent, then no more: {before}; {unread}; then {after}")
    assert unread.megabytes - before.megabytes < MOST_UNREAD_BULK_MB
    accounts.until(OK=ROUNDS)


async def bulk_read_late(server: ServerProcess) -> tuple[int, Resources]:
    """Sends until the server takes no more, and only then reads.

    Returns:
        How much was taken, and what the server held then.
    """
    sent = 0
    is_reading = asyncio.Event()
    # White space is collapsed, but counts in the size of the message.
    long = request(UNREAD_LENGTH, f"Nobody{' ' * 1000}")
    async with grpc.aio.insecure_channel(server.target, NARROW) as channel:
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        bulk = stub.GenerateBulk()

        async def send() -> None:
            nonlocal sent
            while not is_reading.is_set():
                await bulk.write(generation_pb2.GenerateBulkRequest(id=sent, request=long))
                sent += 1
            await bulk.done_writing()

        sending = asyncio.create_task(send())
        taken = -1
        async with asyncio.timeout(PATIENCE_S):
            while taken != sent or await asyncio.to_thread(server.under_way):
                taken = sent
                await asyncio.sleep(1.0)
        unread = await asyncio.to_thread(Resources.of, server)
        is_reading.set()
        answers = await rest_of(bulk)
        await sending
    assert sorted(answer.id for answer in answers) == list(range(sent))
    assert {answer.outcome.response.generated_tokens for answer in answers} == {UNREAD_LENGTH}
    return taken, unread
