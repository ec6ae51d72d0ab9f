"""Engine processes: one that dies affects no other, and none outlives the server."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from tests.resources import cpu_s
from tests.support.endless_model import MAX_TARGET, NAME, copy_version, tamper
from tests.support.process import ONCE, PATIENCE_S, ServerProcess, eventually, until

from seqserve import AsyncClient, Client, ModelState, Result
from seqserve.errors import Unavailable

CALLS = 6
SOURCE = "The old train waits for"
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET, "timeout_s": PATIENCE_S}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def pair(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with ``endless/1`` and ``endless/2``, each with one worker and four slots."""
    folder = tmp_path_factory.mktemp("pair")
    for version in (1, 2):
        copy_version(repository, folder / "models", version)
    options = ("--slots", "4", "--workers", "1", "--keep-versions", "2", "--max-queue-s", "60")
    with ServerProcess(folder / "models", folder, *options) as server:
        yield server
        server.stop()


def engine_of(server: ServerProcess, version: int) -> int:
    """Finds the process of a version: the one that uses CPU time while it decodes."""
    before = {pid: cpu_s(pid) for pid in server.engines()}
    with Client(server.target) as client:
        pieces = client.stream(SOURCE, version=version, **ENDLESS)
        busy: list[int] = []
        while not busy:
            next(pieces)
            busy = [pid for pid in before if cpu_s(pid) - before[pid] >= 0.2]
        pieces.close()
    until(server.is_idle)
    [found] = busy
    return found


@contextmanager
def watched(server: ServerProcess, name: str) -> Iterator[Iterator[int]]:
    with grpc.insecure_channel(server.target) as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=PATIENCE_S)
        yield (int(answer.status) for answer in watch)
        watch.cancel()


def state_of(server: ServerProcess, version: int) -> str:
    [state] = [
        sample.labels["state"]
        for family in text_string_to_metric_families(server.get("/metrics")[1])
        for sample in family.samples
        if sample.name == "seqserve_model_state" and sample.labels["version"] == str(version)
    ]
    return state


def test_each_version_has_a_process_and_the_server_runs_no_model(pair: ServerProcess) -> None:
    with Client(pair.target) as client:
        client.generate(SOURCE, max_decoding_length=3)
    assert len(pair.engines()) == 2
    for pid in (pair.pid, *pair.engines()):
        libraries = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
        assert ("onnxruntime" in libraries) == ("numpy" in libraries) == (pid != pair.pid)


def test_killed_engine_is_restarted_and_others_go_on(pair: ServerProcess) -> None:
    killed = engine_of(pair, version=1)
    lost = pair.value("requests_total", code="UNAVAILABLE", model=NAME)
    with (
        Client(pair.target, retry=ONCE) as client,
        watched(pair, f"{NAME}/1") as first,
        watched(pair, f"{NAME}/2") as second,
    ):
        assert (next(first), next(second)) == (SERVING, SERVING)
        ought = client.generate(SOURCE, version=1, max_decoding_length=30)
        tokens = pair.value("generated_tokens_total")
        neighbour = client.stream(SOURCE, version=2, **ENDLESS)
        next(neighbour)
        for error in asyncio.run(killed_under_load(pair, killed)):
            assert isinstance(error, Unavailable)
            assert error.retry_after_s is not None
        assert next(first) == NOT_SERVING
        while True:
            # The counters stay visible meanwhile.
            assert pair.value("generated_tokens_total") >= tokens
            assert pair.value("slots", model=NAME) == 8
            if pair.health(f"{NAME}/1") == SERVING:
                break
        assert next(first) == SERVING
        again = client.generate(SOURCE, version=1, max_decoding_length=30)
        assert again.hypotheses == ought.hypotheses
        next(neighbour)
        neighbour.close()
    until(pair.is_idle)
    assert pair.value("generated_tokens_total") > tokens
    assert pair.value("requests_total", code="UNAVAILABLE", model=NAME) == lost + CALLS
    assert f"engine has ended model={NAME}/1 failed_requests={CALLS}" in pair.stderr
    assert f"engine has started again model={NAME}/1 restart=1" in pair.stderr
    assert killed not in pair.engines()


async def killed_under_load(server: ServerProcess, engine: int) -> list[Result | BaseException]:
    """Kills an engine with calls in its slots and its queue; returns their outcomes."""
    async with AsyncClient(server.target, retry=ONCE) as client:
        calls = [client.generate(SOURCE, version=1, **ENDLESS) for _ in range(CALLS)]
        together = asyncio.gather(*calls, return_exceptions=True)
        # One row belongs to the other version.
        await eventually(lambda: server.under_way() == CALLS + 1)
        os.kill(engine, signal.SIGKILL)
        return await together


def test_version_whose_engine_keeps_dying_leaves_its_calls_to_another(
    repository: Path, tmp_path: Path
) -> None:
    for version in (1, 2):
        copy_version(repository, tmp_path / "models", version)
    options = ("--traffic", f"{NAME}:1=1,2=99")
    program = ("tests.support.engine_loss", str(tmp_path))
    with (
        ServerProcess(tmp_path / "models", tmp_path, *options, program=program) as server,
        Client(server.target, retry=ONCE) as client,
    ):
        labels = {"model": NAME, "version": "2"}
        [engine] = {*server.engines()} - {engine_of(server, version=1)}
        (kill := tmp_path / "2").write_text("kill")
        os.kill(engine, signal.SIGKILL)
        until(lambda: state_of(server, 2) == "restarting")
        while server.value("engine_restarts_total", **labels) < 3:
            assert client.generate(SOURCE, max_decoding_length=3).version == 1
            assert (state_of(server, 1), state_of(server, 2)) == ("ready", "restarting")
        assert [model.traffic_share for model in client.models()] == [1.0, 0.0]
        assert server.health(f"{NAME}/2") == NOT_SERVING
        assert server.health(NAME) == SERVING
        kill.unlink()
        until(lambda: state_of(server, 2) == "ready")
        # One call in a hundred is for version 1.
        until(lambda: client.generate(SOURCE, max_decoding_length=3).version == 2)
        assert server.value("requests_total", code="OK", **labels) == 1
        assert server.value("engine_resident_memory_bytes", **labels) > 1e6
        assert server.value("engine_cpu_seconds_total", **labels) > 0
    assert f"engine could not be started again model={NAME}/2" in server.stderr
    assert f"engine has survived its trial model={NAME}/2" in server.stderr


def test_engine_restart_is_retried_until_it_succeeds(repository: Path, tmp_path: Path) -> None:
    weights = copy_version(repository, tmp_path / "models", 1) / "weights.bin"
    with (
        ServerProcess(tmp_path / "models", tmp_path) as server,
        Client(server.target, retry=ONCE) as client,
    ):
        [engine] = server.engines()
        tamper(weights)
        os.kill(engine, signal.SIGKILL)
        until(lambda: "could not be started again" in server.stderr)
        assert "weights.bin: sha256" in server.stderr
        assert server.get("/readyz")[0] == 503
        assert server.get("/healthz")[0] == 200
        assert server.health(f"{NAME}/1") == server.health("") == NOT_SERVING
        assert state_of(server, 1) == "restarting"
        [model] = client.models()
        assert (model.state, model.traffic_share) == (ModelState.RESTARTING, 0.0)
        assert model.state_reason.startswith("its engine has failed")
        with pytest.raises(Unavailable):
            client.generate(SOURCE)
        assert server.value("slots", model=NAME) > 0
        # A second time leaves the same state as the first.
        tamper(weights)
        until(lambda: server.get("/readyz")[0] == 200)
        assert client.generate(SOURCE, max_decoding_length=3).generated_tokens <= 3
        server.stop()


def test_version_with_two_processes_answers_while_one_is_killed(
    client: Client, repository: Path, tmp_path: Path
) -> None:
    options = ("--workers", "2", "--engine-processes", "2")
    sources = [SOURCE[: 5 + index] for index in range(12)]
    alone = [client.generate(source, max_decoding_length=20) for source in sources]
    with (
        ServerProcess(repository, tmp_path, *options) as server,
        Client(server.target, retry=ONCE) as client,
        watched(server, "") as changes,
    ):
        assert next(changes) == SERVING
        assert len(server.engines()) == 2
        # Together as alone, whichever process each is in.
        together = client.generate_batch(sources, max_decoding_length=20)
        assert [answer.hypotheses for answer in together] == [answer.hypotheses for answer in alone]
        killed = engine_of(server, version=1)
        os.kill(killed, signal.SIGKILL)
        until(lambda: "engine has ended" in server.stderr)
        for source, ought in zip(sources, alone, strict=True):
            found = client.generate(source, max_decoding_length=20)
            assert found.hypotheses == ought.hypotheses
            assert server.get("/readyz")[0] == 200
        until(lambda: "engine has started again" in server.stderr)
        assert len(server.engines()) == 2 and killed not in server.engines()
        assert server.value("engine_restarts_total") == 1
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        # It never was anything else.
        assert next(changes) == NOT_SERVING
    assert "Traceback" not in server.stderr
