"""Start and end of a server: signals, startup errors, and what it reports about itself."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from seqserve import AsyncClient, Client, Result, RetryPolicy
from seqserve.errors import FailedPrecondition, Unavailable
from seqserve.model import ModelState

from .endless_model import MAX_TARGET, NAME, copy_version, tamper
from .process import PATIENCE_S, ServerProcess, until

CALLS = 12
SOURCE = "The old train waits for"
LONG: dict[str, Any] = {"min_decoding_length": 1500, "max_decoding_length": 1500}
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET}
ONCE = RetryPolicy(max_attempts=1)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("is_told_to_all", [False, True], ids=["the server", "its group"])
def test_no_accepted_call_is_lost(repository: Path, tmp_path: Path, is_told_to_all: bool) -> None:
    # Then none is refused because the machine is slow.
    options = ("--slots", "4", "--workers", "2", "--max-queue-s", "60", "--drain-timeout-s", "120")
    with ServerProcess(repository, tmp_path, *options) as server:
        # SIGINT is Ctrl-C in a terminal; SIGTERM stops a service.
        end = server.signal_all if is_told_to_all else server.signal
        results = asyncio.run(end_under_load(server, end))
        assert server.wait() == 0
        assert server.engines() == []
    assert len({result.hypotheses for result in results}) == 1
    assert results[0].generated_tokens == 1500
    assert "all_finished=True" in server.stderr
    assert "Traceback" not in server.stderr


async def end_under_load(
    server: ServerProcess, end: Callable[[signal.Signals], None]
) -> list[Result]:
    """Sends so many calls that some must wait, stops the server meanwhile, and calls once more."""
    async with AsyncClient(server.target, retry=ONCE, timeout_s=PATIENCE_S) as client:
        calls = [asyncio.create_task(client.generate(SOURCE, **LONG)) for _ in range(CALLS)]
        await asyncio.to_thread(until, lambda: taken(server) == CALLS)
        end(signal.SIGTERM)
        await asyncio.to_thread(until, lambda: server.get("/readyz")[0] == 503)
        assert server.get("/healthz")[0] == 200
        with pytest.raises(Unavailable) as refused:
            await client.generate("Nobody")
        # Not a failed connection, but an answer with retry advice.
        assert refused.value.retry_after_s is not None
        assert not all(call.done() for call in calls), "the accepted calls ended before the refusal"
        return await asyncio.gather(*calls)


def taken(server: ServerProcess) -> float:
    """Counts the calls that run or wait."""
    return server.rows_in_use() + server.value("queue_depth")


def test_calls_beyond_the_drain_timeout_get_unavailable(repository: Path, tmp_path: Path) -> None:
    with ServerProcess(repository, tmp_path, "--drain-timeout-s", "0.2") as server:
        with Client(server.target, retry=ONCE) as client:
            pieces = client.stream(SOURCE, **ENDLESS)
            next(pieces)
            server.signal(signal.SIGTERM)
            with pytest.raises(Unavailable) as lost:
                list(pieces)
        # The status that clients see, with retry advice.
        assert lost.value.retry_after_s and lost.value.request_id
        assert server.wait() == 0
    line = f"id={lost.value.request_id} method=GenerationService.GenerateStream code=UNAVAILABLE"
    assert line in server.stderr
    assert "all_finished=False" in server.stderr


def test_second_signal_ends_at_once(repository: Path, tmp_path: Path) -> None:
    with ServerProcess(repository, tmp_path) as server, Client(server.target) as client:
        pieces = client.stream(SOURCE, **ENDLESS)
        next(pieces)
        server.signal(signal.SIGINT)
        until(lambda: "draining" in server.stderr)
        server.signal(signal.SIGINT)
        assert server.wait() == 130
        until(lambda: not server.engines())
        pieces.close()
    assert "Traceback" not in server.stderr


def test_idle_server_ends_well(repository: Path, tmp_path: Path) -> None:
    with ServerProcess(repository, tmp_path) as server:
        server.signal(signal.SIGINT)
        assert server.wait() == 0


def test_watcher_of_health_does_not_delay_the_end(repository: Path, tmp_path: Path) -> None:
    with (
        ServerProcess(repository, tmp_path) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == SERVING
        server.signal(signal.SIGTERM)
        assert next(watch).status == NOT_SERVING
        assert server.wait() == 0


# ---- startup errors


def fails_to_start(repository: Path, folder: Path, *options: str) -> tuple[int, str]:
    server = ServerProcess(repository, folder, *options)
    try:
        status = server.wait()
    finally:
        server.kill()
    assert server.stdout == ""
    assert "Traceback" not in server.stderr
    return status, server.stderr


@pytest.mark.parametrize("flag", ["--port", "--metrics-port"])
def test_port_in_use(repository: Path, tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, stderr = fails_to_start(repository, tmp_path, flag, port)
    assert status == 1
    assert f"{flag}: cannot listen on" in stderr
    assert port in stderr


def test_missing_provider(repository: Path, tmp_path: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    status, stderr = fails_to_start(repository, tmp_path, "--provider", "cuda")
    assert status == 1
    assert "pip install 'seqserve[server-gpu]'" in stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--traffic", NAME], "--traffic: "),
        (["--traffic", f"{NAME}:7=1"], "--traffic: "),
        (
            ["--default-model", "endles"],
            f"--default-model: 'endles' is not in the repository; there are {NAME}",
        ),
        (["--model-repository", "nothing"], "--model-repository"),
    ],
)
def test_invalid_option_is_named_before_models_are_loaded(
    repository: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    status, stderr = fails_to_start(repository, tmp_path, *options)
    assert status == 2
    assert message in stderr
    assert "model loaded" not in stderr


def test_misspelt_variable_is_warned_of(repository: Path, tmp_path: Path) -> None:
    environment = {"SEQSERVE_SLOT": "4"}
    with ServerProcess(repository, tmp_path, environment=environment) as server:
        pass
    assert (
        "warning unknown variable name=SEQSERVE_SLOT did_you_mean=SEQSERVE_SLOTS" in server.stderr
    )


def test_empty_repository(tmp_path: Path) -> None:
    (tmp_path / "models" / NAME / "latest").mkdir(parents=True)
    status, stderr = fails_to_start(tmp_path / "models", tmp_path)
    assert status == 1
    assert "<name>/<version>/" in stderr


# ---- a damaged repository


def test_only_model_is_damaged(repository: Path, tmp_path: Path) -> None:
    tamper(copy_version(repository, tmp_path / "models", 1) / "decoder.onnx")
    status, stderr = fails_to_start(tmp_path / "models", tmp_path)
    assert status == 1
    assert "no model can be served" in stderr
    assert "decoder.onnx: sha256" in stderr


@pytest.fixture(scope="module")
def damaged(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Versions 1 and 2 are intact; each later one is broken in its own way."""
    folder = tmp_path_factory.mktemp("damaged")
    models = folder / "models"
    for version in (1, 2):
        copy_version(repository, models, version)
    tamper(copy_version(repository, models, 3) / "weights.bin")
    copy_version(repository, models, 4, format=99)
    # All hashes are right, but caches of this size do not fit the graph.
    architecture = json.loads((models / NAME / "1" / "manifest.json").read_text(encoding="utf-8"))
    copy_version(repository, models, 5, architecture=architecture["architecture"] | {"heads": 3})
    (models / NAME / "6").mkdir()
    with ServerProcess(models, folder, "--slots", "4", "--traffic", f"{NAME}:1=0,2=1") as server:
        yield server


def test_intact_versions_are_served(damaged: ServerProcess) -> None:
    with Client(damaged.target) as client:
        highest = client.generate("Nobody", max_decoding_length=3)
        pinned = client.generate("Nobody", version=1, max_decoding_length=3)
        assert (highest.version, pinned.version) == (2, 1)
        assert highest.hypotheses == pinned.hypotheses


def test_broken_versions_are_listed_with_a_reason(damaged: ServerProcess) -> None:
    with Client(damaged.target, retry=ONCE) as client:
        models = {model.version: model for model in client.models()}
        with pytest.raises(FailedPrecondition):
            client.generate("Nobody", version=3)
    states = [models[version].state for version in range(1, 7)]
    assert states == [ModelState.READY] * 2 + [ModelState.FAILED] * 4
    assert [version for version, model in models.items() if model.is_default] == [2]
    assert [models[version].traffic_share for version in range(1, 7)] == [0, 1, 0, 0, 0, 0]
    reasons = {3: "weights.bin: sha256", 4: "format is 99", 5: "cannot be run", 6: "manifest.json"}
    for version, reason in reasons.items():
        assert reason in models[version].state_reason


def test_versions_of_a_model_share_their_series(damaged: ServerProcess) -> None:
    lines = damaged.get("/metrics")[1].splitlines()
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))
    assert damaged.value("slots", model=NAME) == 8
    assert damaged.value("model_loads_total", result="success") == 2
    assert damaged.value("model_loads_total", result="failure") == 4


def test_health_of_each_model(damaged: ServerProcess) -> None:
    with grpc.insecure_channel(damaged.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def status(service: str) -> int:
            request = health_pb2.HealthCheckRequest(service=service)
            return int(health.Check(request, timeout=PATIENCE_S).status)

        services = (
            "seqserve.v1.GenerationService",
            "seqserve.v1.ModelService",
            "inference.GRPCInferenceService",
        )
        for name in ("", *services, NAME, f"{NAME}/2"):
            assert status(name) == SERVING
        assert status(f"{NAME}/3") == NOT_SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            status("en-fr")
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


def test_reflection_lists_the_services(damaged: ServerProcess) -> None:
    with grpc.insecure_channel(damaged.target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=PATIENCE_S)
    assert {service.name for service in answer.list_services_response.service} == {
        "seqserve.v1.GenerationService",
        "seqserve.v1.ModelService",
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


def test_warm_up_leaves_no_trace(repository: Path, tmp_path: Path) -> None:
    with ServerProcess(repository, tmp_path) as server:
        for name in ("batch_rows_count", "source_tokens_total", "encode_duration_seconds_count"):
            assert server.value(name) == 0
        assert server.is_idle()
        assert server.get("/readyz")[0] == 200
