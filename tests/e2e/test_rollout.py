"""Versions that are added and removed while a server runs: no call fails, and nothing leaks."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2
from tests.resources import Resources, until_released
from tests.support.endless_model import NAME, copy_version, tamper
from tests.support.process import MODELS, ONCE, ServerProcess, until
from tests.support.swapping import publish, swapped

from seqserve import Client, Model, ModelState
from seqserve.command.main import main
from seqserve.errors import FailedPrecondition, NotFound

BUSY = ("--max-queue-s", "60", "--caller-share", "1", "--max-queue", "1024")
"""Clients without retries must not be refused, although there are many."""
OPTIONS = ("--watch-interval-s", "0.1", "--slots", "16", "--workers", "1", *BUSY)


@pytest.fixture
def models(repository: Path, tmp_path: Path) -> Path:
    """The model repository of the server below, at first with version 7."""
    copy_version(repository, tmp_path / "models", 7)
    return tmp_path / "models"


@pytest.fixture
def swapping(models: Path) -> Iterator[ServerProcess]:
    """A server that keeps one version and scans for others ten times a second."""
    with ServerProcess(models, models.parent, *OPTIONS, "--keep-versions", "1") as server:
        yield server
        server.stop()


def version_of(server: ServerProcess, version: int) -> Model | None:
    with Client(server.target, retry=ONCE) as client:
        return next((model for model in client.models() if model.version == version), None)


def until_state(server: ServerProcess, version: int, state: ModelState) -> Model:
    def is_so() -> bool:
        model = version_of(server, version)
        return model is not None and model.state is state

    until(is_so)
    model = version_of(server, version)
    assert model is not None
    return model


def failures(server: ServerProcess) -> float:
    calls = server.value("requests_total", model=NAME)
    return calls - server.value("requests_total", model=NAME, code="OK")


def test_broken_version_replaces_nothing(
    swapping: ServerProcess, repository: Path, models: Path
) -> None:
    draft = copy_version(repository, models.parent / "draft", 8)
    tamper(draft / "weights.bin")
    place = models / NAME / "8"
    draft.rename(place)
    failed = until_state(swapping, 8, ModelState.FAILED)
    assert "weights.bin: sha256" in failed.state_reason
    assert swapping.value("model_state", version="8", state="failed") == 1
    with Client(swapping.target, retry=ONCE) as client:
        assert client.generate("Nobody", max_decoding_length=3).version == 7
        with pytest.raises(FailedPrecondition, match=f"{NAME}/8 could not be loaded"):
            client.generate("Nobody", version=8, max_decoding_length=3)
        with pytest.raises(FailedPrecondition, match=r"weights\.bin: sha256"):
            client.load_model(NAME, 8)
    assert swapping.health(f"{NAME}/8") == health_pb2.HealthCheckResponse.NOT_SERVING
    # A second time leaves the same state as the first.
    tamper(place / "weights.bin")
    until_state(swapping, 8, ModelState.READY)
    until_state(swapping, 7, ModelState.AVAILABLE)
    shutil.rmtree(models / NAME / "7")
    until(lambda: version_of(swapping, 7) is None)


def test_unloaded_version_frees_everything(swapping: ServerProcess) -> None:
    with Client(swapping.target, retry=ONCE) as client:
        for _ in range(2):
            [engine] = swapping.engines()
            before = Resources.of(swapping)
            unloaded = client.unload_model(NAME, 7)
            assert (unloaded.state, unloaded.traffic_share) == (ModelState.AVAILABLE, 0.0)
            assert engine not in swapping.engines() == []
            assert swapping.get("/readyz")[0] == 503
            assert swapping.health(NAME) == health_pb2.HealthCheckResponse.NOT_SERVING
            with pytest.raises(FailedPrecondition, match="is not loaded; LoadModel, or"):
                client.generate("Nobody")
            loaded = client.load_model(NAME)
            assert (loaded.version, loaded.traffic_share) == (7, 1.0)
            assert swapping.get("/readyz")[0] == 200
            assert client.generate("Nobody", max_decoding_length=3).version == 7
    until_released(swapping, before)


def test_command_loads_unloads_and_sets_traffic(
    swapping: ServerProcess,
    repository: Path,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SEQSERVE_TARGET", swapping.target)
    publish(repository, models, 3)
    assert main(["models", "load", NAME, "3"]) == 0
    assert main(["models", "traffic", NAME, "3=3", "7=1"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[:4] for line in lines[1:]] == [
        [f"{NAME}*", "3", "ready", "75%"],
        [f"{NAME}*", "7", "ready", "25%"],
    ]
    with Client(swapping.target) as client:
        versions = {client.generate("a", max_decoding_length=1).version for _ in range(64)}
    assert versions == {3, 7}
    assert main(["models", "traffic", NAME]) == 0
    assert main(["models", "unload", NAME, "3"]) == 0
    assert "available" in capsys.readouterr().out
    with Client(swapping.target) as client, pytest.raises(NotFound):
        client.unload_model(NAME, 9)


def test_each_engine_gets_calls_that_name_no_version(shipped: ServerProcess) -> None:
    with Client(shipped.target) as client:
        loaded = [model for model in client.models() if model.state is not ModelState.AVAILABLE]
    assert [model.traffic_share for model in loaded] == [1.0] * len(loaded)
    assert len(shipped.engines()) == len(loaded) < len([*MODELS.glob("*/*/manifest.json")])


@pytest.mark.parametrize(
    ("swaps", "callers"), [(5, 8), pytest.param(20, 32, marks=pytest.mark.chaos)]
)
def test_many_swaps_under_many_streams(
    swapping: ServerProcess, repository: Path, models: Path, swaps: int, callers: int
) -> None:
    [first] = swapping.engines()
    done = swapped(swapping.target, repository, models, first=7, swaps=swaps, callers=callers)
    traffic = asyncio.run(done)
    assert traffic.wrong == []
    assert set(traffic.answered) >= {7, 7 + swaps}
    until(lambda: len(swapping.engines()) == 1)
    assert first not in swapping.engines()
    assert failures(swapping) == 0
    # Counts of engines that have ended remain.
    assert swapping.value("generated_tokens_total") >= 60 * traffic.answered.total()
    assert swapping.value("model_loads_total", result="success") == 1 + swaps
    assert swapping.value("model_info") == 1
    print(f"\n{swaps} swaps: {traffic.answered.total()} calls answered, none failed or cut off")
