"""An overloaded server; `make chaos` measures one for a minute."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.support.flood import CALLER, Load, Outcomes
from tests.support.process import PATIENCE_S, ServerProcess, until

from seqserve import AsyncClient
from seqserve.v1 import model_pb2, model_pb2_grpc

SLOTS, MAX_QUEUE = 8, 16
SENT = 2 * MAX_QUEUE
WAITING = MAX_QUEUE // 2 + 1
"""Share of these that one client gets: half of the queue."""
SOURCES = ["Nobody waits for our old train.", "Nobody", "The coffee tastes good and"] * 7
ENDLESS = {"min_decoding_length": 20_000, "max_decoding_length": 20_000, "timeout_s": PATIENCE_S}


@pytest.fixture(scope="module")
def narrow(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # Then only counts decide who may wait, not the speed of the machine.
    bounds = ("--max-queue", str(MAX_QUEUE), "--max-queue-s", "60")
    options = ("--slots", str(SLOTS), "--workers", "1", "--caller-metadata", CALLER, *bounds)
    folder = tmp_path_factory.mktemp("overload")
    with ServerProcess(repository, folder, *options, "--log-level", "warning") as server:
        yield server
        until(server.is_idle)
        assert "Traceback" not in server.stderr, "something went wrong unnoticed"


async def occupied(client: AsyncClient, server: ServerProcess) -> list[asyncio.Task[object]]:
    running = [asyncio.create_task(client.generate("Nobody", **ENDLESS)) for _ in range(SLOTS)]
    async with asyncio.timeout(PATIENCE_S):
        while server.rows_in_use() < SLOTS:
            await asyncio.sleep(0.01)
    return running  # type: ignore[return-value]


async def dismissed(tasks: list[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def flooded(server: ServerProcess, loud: Outcomes) -> AsyncIterator[Load]:
    """Occupies every slot and one client's share of the queue; then releases the slots."""
    async with (
        AsyncClient(server.target) as client,
        Load(server.target, SOURCES, max_decoding_length=50) as load,
        asyncio.TaskGroup() as group,
        asyncio.timeout(PATIENCE_S),
    ):
        running = await occupied(client, server)
        for _ in range(SENT):
            group.create_task(load.call("loud", loud))
        while sum(loud.codes.values()) < SENT - WAITING:
            await asyncio.sleep(0.01)
        yield load
        await dismissed(running)


def test_flood_of_one_client_leaves_others_served(narrow: ServerProcess) -> None:
    loud, quiet, others = Outcomes(), Outcomes(), 4
    before = narrow.value("rejected_total", reason="caller_share")

    async def main() -> None:
        async with asyncio.TaskGroup() as group, flooded(narrow, loud) as load:
            calls = [
                group.create_task(load.call(f"quiet-{number}", quiet)) for number in range(others)
            ]
            while narrow.value("queue_depth") < WAITING + others:
                await asyncio.sleep(0.01)
        assert all(call.done() for call in calls)

    asyncio.run(main())
    assert (quiet.answered, quiet.codes) == (others, {})
    assert (loud.answered, loud.codes) == (WAITING, {"RESOURCE_EXHAUSTED": SENT - WAITING})
    assert narrow.value("rejected_total", reason="caller_share") == before + SENT - WAITING


def test_health_reflection_and_models_pass(narrow: ServerProcess) -> None:
    async def main() -> None:
        async with flooded(narrow, Outcomes()) as load:
            channel, _ = load.connection("onlooker")
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            models = model_pb2_grpc.ModelServiceStub(channel)
            assert (await models.ListModels(model_pb2.ListModelsRequest())).models
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            listing = reflection.ServerReflectionInfo(iter([request]))
            assert (await listing.read()).list_services_response.service
            listing.cancel()

    asyncio.run(main())
    assert narrow.value("rejected_total", model="") == 0
