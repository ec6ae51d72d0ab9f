"""A server whose models are loaded by their first calls: three of them, and room for two."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from tests.support.process import MODELS, ONCE, ServerProcess, eventually, until

from seqserve import AsyncClient, Client, ModelState
from seqserve.errors import DeadlineExceeded, FailedPrecondition
from seqserve.open_inference import open_inference_pb2 as pb
from seqserve.open_inference import open_inference_pb2_grpc

OPTIONS = ("--front-processes", "1", "--max-loaded-mb", "180", "--workers", "1", "--slots", "8")
COFFEE = "The coffee tastes good."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose engines are stopped before they load, if a test says so."""
    program = ("tests.support.engine_loss", str(tmp_path))
    with ServerProcess(MODELS, tmp_path, *OPTIONS, program=program) as server:
        yield server
        server.stop()


def loaded(client: Client) -> set[str]:
    return {model.name for model in client.models() if model.state is ModelState.READY}


def test_calls_load_what_they_need_and_the_unused_makes_room(server: ServerProcess) -> None:
    assert server.engines() == []
    assert server.get("/readyz")[0] == 200
    with grpc.insecure_channel(server.target) as channel:
        inference = open_inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        described = inference.ModelMetadata(pb.ModelMetadataRequest(name="en-de"), timeout=60)
        assert list(described.versions) == ["5"] and server.engines() == []
        assert inference.ModelReady(pb.ModelReadyRequest(name="en-ko"), timeout=60).ready
    assert server.health("en-de") == health_pb2.HealthCheckResponse.SERVING
    with Client(server.target, retry=ONCE) as client:
        pairs = {(each.source_language, each.target_language) for each in client.language_pairs()}
        assert {("ko", "de"), ("en", "de")} <= pairs
        newest = [model for model in client.models() if "first call" in model.state_reason]
        assert {model.name for model in newest} == {"de-en", "en-de", "en-ko", "ko-en"}
        assert all(model.licence for model in newest)
        assert client.generate(COFFEE).text == "Der Kaffee schmeckt gut."
        assert loaded(client) == {"en-de"}
        # Over a pivot both are loaded, and stay while the call needs them.
        korean = client.generate("커피가 맛이 좋네요.", source_language="ko", target_language="de")
        assert korean.text == "Der Kaffee schmeckt gut."
        assert loaded(client) == {"en-de", "ko-en"} and len(server.engines()) == 2
        client.generate(COFFEE)
        assert client.generate(COFFEE, source_language="en", target_language="ko").text
        assert loaded(client) == {"en-de", "en-ko"} and len(server.engines()) == 2
    assert server.value("model_loads_total", result="success") == 3
    assert server.value("model_evictions_total") == 1
    assert server.value("model_load_seconds_sum") > 0
    assert 0 < server.value("loaded_bytes") <= 180e6


def is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return stat.rpartition(")")[2].split()[0] == "T"


def test_a_deadline_ends_the_call_and_not_the_load(server: ServerProcess, tmp_path: Path) -> None:
    stop = tmp_path / "5"
    stop.touch()
    with Client(server.target, retry=ONCE) as client:

        def begins_a_load() -> bool:
            with pytest.raises(DeadlineExceeded):
                client.generate(COFFEE, timeout_s=0.05)
            return any(map(is_stopped, server.engines()))

        # A call whose deadline passes before it arrives begins none.
        until(begins_a_load)
        stop.unlink()
        [engine] = server.engines()
        os.kill(engine, signal.SIGCONT)
        until(lambda: loaded(client) == {"en-de"})
        assert client.generate(COFFEE).text == "Der Kaffee schmeckt gut."
    assert server.value("model_loads_total", result="success") == 1


def test_an_engine_that_is_killed_while_it_loads_fails_its_calls_alone(
    server: ServerProcess, tmp_path: Path
) -> None:
    stop = tmp_path / "3"
    stop.touch()

    async def killed() -> str:
        async with AsyncClient(server.target, retry=ONCE) as client:
            call = asyncio.create_task(client.generate(COFFEE, model="ko-en"))
            await eventually(lambda: server.engines() != [])
            [engine] = server.engines()
            stop.unlink()
            os.kill(engine, signal.SIGKILL)
            with pytest.raises(FailedPrecondition, match="ko-en/3 could not be loaded") as caught:
                await call
            assert (await client.generate(COFFEE)).text == "Der Kaffee schmeckt gut."
            return str(caught.value)

    assert "ended" in asyncio.run(killed())
    assert server.value("model_loads_total", result="failure") == 1
    with Client(server.target, retry=ONCE) as client:
        until(lambda: server.health("ko-en") == health_pb2.HealthCheckResponse.SERVING)
        assert client.generate("커피가 맛이 좋네요.", model="ko-en").text
