import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from typing import Any

import grpc
import pytest
from grpc._cython import cygrpc
from tests.support.frames import HELLO, call, opened
from tests.support.logged import fields_of
from tests.unit.server.front.calls import failure, request, trailers
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.service import Service, serving, until

from seqserve.v1 import generation_pb2, generation_pb2_grpc, model_pb2
from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.front.call.wire import at_end
from seqserve_server.front.overload.acceptor import AcceptingServer, new_server
from seqserve_server.front.overload.admission import Admission
from seqserve_server.front.overload.memory import PEER, held, release_all
from seqserve_server.front.telemetry.metrics import Metrics

ADMISSION = "seqserve_server.front.overload.admission"
SOURCE = request("a")


class Servicer(generation_pb2_grpc.GenerationServiceServicer):
    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: object
    ) -> generation_pb2.GenerateResponse:
        return generation_pb2.GenerateResponse(model=request.source)


async def refuse(method: str, context: Any, full: QueueFull) -> None:
    raise AssertionError("nothing is refused here")


def open_admission(peer_of: Callable[[Any], str] = lambda context: "peer") -> Admission:
    # Nothing here gives back the memory for a message.
    return Admission(peer_of, refuse, max_message_bytes=0, slots=0)


@asynccontextmanager
async def started(
    *arguments: tuple[str, int], admission: Any = None, servicer: Any = None
) -> AsyncIterator[tuple[Any, Any]]:
    """A server that admits up to 256 calls at a time, and a stub."""
    server: Any = new_server(admission or open_admission(), [], arguments)
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer or Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield server, generation_pb2_grpc.GenerationServiceStub(channel)
    finally:
        # A gRPC server that was not stopped hangs when it is freed.
        await server.stop(0)


async def ends(calls: list[Any]) -> Counter[str]:
    """Waits for calls, and counts the codes with which they end."""
    return Counter([(await call.code()).name for call in calls])


class FullHouse:
    """Admits no calls but those of health and models."""

    def enter(self, caller: str) -> None:
        if not caller.endswith("/"):
            raise QueueFull("no place", 0.25, Bound.BACKLOG)

    def leave(self, caller: str) -> None:
        """Gives no place back."""


@pytest.fixture
async def full(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    monkeypatch.setattr(f"{ADMISSION}.PendingCalls", lambda slots: FullHouse())
    monkeypatch.setattr(f"{ADMISSION}._LOG_INTERVAL_S", 0.3)
    async with serving() as service:
        yield service


async def test_a_burst_beyond_the_backlog_is_refused_and_nothing_is_lost(service: Service) -> None:
    # Together in one turn, so that many arrive before the first one is served.
    codes = await ends([service.generation.Generate(request("a")) for _ in range(600)])
    assert set(codes) <= {"OK", "RESOURCE_EXHAUSTED"} and codes["OK"]
    await service.until_value(600, "requests_total")


async def test_a_refused_call_says_when_to_come_back(full: Service) -> None:
    call = full.generation.Generate(request("a"), metadata=(("x-request-id", "mine"),))
    error = await failure(call)
    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "no place")
    assert trailers(error)["x-request-id"] == "mine"
    assert b"RetryInfo" in trailers(error)["grpc-status-details-bin"]
    # Models are listed however many calls wait.
    assert (await full.models.ListModels(model_pb2.ListModelsRequest())).models


@pytest.mark.parametrize(
    "method", ["GenerateStream", "GenerateBatch", "Score", "Tokenize", "GenerateBulk"]
)
async def test_every_method_that_does_work_is_refused(full: Service, method: str) -> None:
    kind = getattr(generation_pb2, f"{method.replace('Stream', '')}Request")
    # A bulk call is refused before it is read.
    call = getattr(full.generation, method)(*[] if method == "GenerateBulk" else [kind()])
    assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    name = f"GenerationService.{method}"
    await full.until_value(1, "requests_total", method=name, code="RESOURCE_EXHAUSTED")
    await full.until_value(1, "rejected_total", reason="backlog")


async def test_refused_calls_share_a_line_of_the_log(full: Service, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    await ends([full.generation.Generate(request("a")) for _ in range(20)])
    told = partial(fields_of, caplog, "calls refused on arrival")
    await until(lambda: sum(line["calls"] for line in told()) == 20)
    assert len(told()) < 20
    assert {line["method"] for line in told()} == {"GenerationService.Generate"}


async def test_a_place_is_free_again_once_the_call_is_served(service: Service) -> None:
    for _ in range(30):
        codes = await ends([service.generation.Generate(request("a")) for _ in range(10)])
        assert codes == {"OK": 10}


async def test_calls_are_served_in_their_order_of_arrival() -> None:
    async with started() as (_, stub):
        calls = [stub.Generate(request(str(number))) for number in range(100)]
        assert [(await call).model for call in calls] == [str(number) for number in range(100)]


async def test_calls_that_grpc_ends_itself_are_counted() -> None:
    bounds = [("grpc.server.max_pending_requests", 1)]
    bounds += [("grpc.server.max_pending_requests_hard_limit", 2)]
    async with started(*bounds) as (server, stub):
        assert isinstance(server, AcceptingServer)
        # One turn in which nothing is taken is enough.
        codes = await ends([stub.Generate(SOURCE) for _ in range(500)])
        assert codes["OK"] + codes["CANCELLED"] == 500 and codes["CANCELLED"]
        assert server.calls_never_accepted() == codes["CANCELLED"]
        assert (await stub.Generate(SOURCE)).model == "a"
        assert server.calls_never_accepted() == codes["CANCELLED"]


@pytest.mark.parametrize(
    "path", ["/\udcff", "/a.b/\udcc3(", "", "/seqserve.v1.GenerationService/A"]
)
async def test_a_method_that_there_is_not_ends_its_own_call(path: str, service: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
    writer.write(HELLO + opened(1, call(**{":path": path})))
    await reader.readuntil(b"no such method")
    writer.close()
    assert await service.generation.Generate(request("a")).code() is grpc.StatusCode.OK


async def test_a_fault_on_arrival_ends_its_own_call_and_the_next_ones_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # More than there are tasks that take calls: each one would end with its call.
    faults = iter([True] * 20)

    def peer_of(context: Any) -> str:
        if next(faults, False):
            raise LookupError("a fault")
        return "peer"

    async with started(admission=open_admission(peer_of)) as (_, stub):
        for _ in range(20):
            assert await stub.Generate(SOURCE, timeout=60).code() is grpc.StatusCode.INTERNAL
        assert (await stub.Generate(SOURCE, timeout=60)).model == "a"
    assert caplog.messages.count("a call could not be admitted") == 20


async def test_many_calls_are_taken_in_a_turn_once_many_wait() -> None:
    """Those that gRPC's core holds too many of, it ends without a retry time."""
    limit = "grpc.server.max_pending_requests_hard_limit", 1 << 20
    async with started(limit) as (server, stub), asyncio.timeout(PATIENCE_S):
        await ends([stub.Generate(SOURCE) for _ in range(2000)])
        arrivals = server._server._arrivals[b"/seqserve.v1.GenerationService/Generate"]
        # How many come in a turn depends on the machine.
        while arrivals.takers < 256:
            await ends([stub.Generate(SOURCE) for _ in range(2000)])
        assert arrivals.takers == 256


KB = 1 << 10


class Reading(Servicer):
    """Notes how many messages are there at a time."""

    def __init__(self) -> None:
        self.most = self.now = 0
        self.may_end = asyncio.Event()
        self.served: list[str] = []

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> generation_pb2.GenerateResponse:
        at_end(partial(release_all, held()))
        self.served.append(PEER.get())
        self.now += 1
        self.most = max(self.most, self.now)
        await self.may_end.wait()
        self.now -= 1
        return generation_pb2.GenerateResponse()


@pytest.mark.parametrize("callers", [1, 2])
async def test_no_more_messages_are_received_than_there_is_memory_for(callers: int) -> None:
    # For 64 messages, of which a caller that is alone may have half.
    reading = Reading()
    peers = cycle([f"peer {number}" for number in range(callers)])
    admission = Admission(lambda context: next(peers), refuse, max_message_bytes=1 << 20, slots=0)
    async with started(admission=admission, servicer=reading) as (_, stub):
        large = request("a" * 900 * KB)
        calls = [stub.Generate(large) for _ in range(100)]
        share = 64 // (callers + 1)
        await until(lambda: reading.now == callers * share)
        reading.may_end.set()
        assert await ends(calls) == {"OK": 100}
        await until(lambda: not admission.messages.reserved_bytes)
    assert reading.most == callers * share
    # In turn, also where one caller's calls wait alone.
    assert Counter(reading.served) == {f"peer {each}": 100 // callers for each in range(callers)}


async def test_calls_without_a_message_hold_up_no_other(monkeypatch: Any, service: Service) -> None:
    monkeypatch.setattr("seqserve_server.front.overload.acceptor._SILENCE_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port)
    path = {":path": "/seqserve.v1.GenerationService/Generate"}
    # Half of the memory is for 32 messages.
    writer.write(HELLO + b"".join(opened(2 * each + 1, call(**path)) for each in range(32)))
    await until(lambda: len(service.server._admission.messages.unread) == 32)
    assert await service.generation.Generate(request("a")).code() is grpc.StatusCode.OK
    await reader.readuntil(b"others wait")
    writer.close()


@pytest.mark.parametrize(
    ("holder", "name", "changed"),
    [
        pytest.param(cygrpc, "AioServer", object, id="takes calls otherwise"),
        pytest.param(
            AcceptingServer,
            "__init__",
            lambda self, *arguments, xds: None,
            id="is constructed otherwise",
        ),
    ],
)
async def test_another_grpc_gets_its_own_server(
    holder: Any, name: str, changed: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(holder, name, changed)
    made = []
    monkeypatch.setattr(grpc.aio, "server", lambda **arguments: made.append(arguments))
    new_server(open_admission(), [], [("grpc.so_reuseport", 0)])
    assert made == [{"interceptors": [], "options": [("grpc.so_reuseport", 0)]}]
    assert "calls are not refused on arrival" in caplog.messages


def test_only_calls_missing_at_two_scrapes_are_lost() -> None:
    missing = iter([7, 3, 5, 5, 0])
    metrics = Metrics()
    metrics.show_calls_never_accepted(lambda: next(missing))
    lost = [metrics.registry.get_sample_value("seqserve_lost_calls_total") for _ in range(5)]
    assert lost == [0, 3, 3, 5, 5]
