"""Many calls at once: each is answered, or refused with a retry time, in bounded memory."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.chaos.test_frames import peak_mb
from tests.support.process import MODELS, ServerProcess, until

from seqserve.v1 import generation_pb2, generation_pb2_grpc

PATIENCE_S = 300.0
PEAK_MB = 300.0
"""What messages, and all that is made of them, may take of the front's memory."""

pytestmark = pytest.mark.chaos


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(MODELS, tmp_path, "--log-level", "warning").unharmed() as server:
        yield server


async def together(target: str, source: str, connections: int, calls: int) -> Counter[str]:
    """Begins calls at once, and counts how they end."""
    # Otherwise channels with the same target share a connection.
    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(target, options=own) for _ in range(connections)]
    stubs: list[Any] = [generation_pb2_grpc.GenerationServiceStub(each) for each in channels]
    request = generation_pb2.GenerateRequest(source=source)
    request.options.max_decoding_length = 2

    async def outcome(call: Any) -> str:
        code = await call.code()
        details = dict(await call.trailing_metadata()).get("grpc-status-details-bin", b"")
        return "retry" if b"RetryInfo" in details else code.name

    begun = [
        stubs[each % connections].Generate(request, timeout=PATIENCE_S) for each in range(calls)
    ]
    ends = Counter(await asyncio.gather(*map(outcome, begun)))
    for channel in channels:
        await channel.close()
    return ends


@pytest.mark.parametrize("connections", [1, 50])
def test_large_messages_are_received_in_bounded_memory(
    server: ServerProcess, connections: int
) -> None:
    before_mb = peak_mb(server)
    large = ("The cat sat on the mat. " * 43_000)[:1_000_000]
    ends = asyncio.run(together(server.target, large, connections, 300))
    until(server.is_idle)
    print(f"\n{dict(ends)}; {before_mb:.0f} MB before, {peak_mb(server):.0f} MB at most")
    # A text may have too many segments.
    assert ends["retry"] and set(ends) <= {"retry", "OK", "INVALID_ARGUMENT"}
    assert peak_mb(server) - before_mb < PEAK_MB


@pytest.mark.parametrize("connections", [10, 50, 500])
def test_every_call_of_a_burst_is_answered_or_has_a_retry_time(
    server: ServerProcess, connections: int
) -> None:
    ends = asyncio.run(together(server.target, "Hello there.", connections, 6000))
    print(f"\n{dict(ends)}")
    assert set(ends) == {"OK", "retry"}
    assert server.value("lost_calls_total") == 0
