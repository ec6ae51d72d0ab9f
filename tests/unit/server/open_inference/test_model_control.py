import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from tests.unit.server.front.calls import awaited, details, failure, invalid, request
from tests.unit.server.front.echo import manifest
from tests.unit.server.front.service import Service, until
from tests.unit.server.open_inference.tensor import asking, tensors

from seqserve import __version__
from seqserve.open_inference import open_inference_pb2
from seqserve.open_inference import open_inference_pb2 as oip
from seqserve.v1 import model_pb2
from seqserve_server.contract.errors import ModelUnavailable
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.stats import EngineStats, Ready
from seqserve_server.front.engine_client.engine import EngineStatus, Receive, RefusalCache
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.models.lifecycle import Control, Entry, ModelState
from seqserve_server.front.telemetry.call_metrics import Calls, Kind
from seqserve_server.front.telemetry.engine_metrics import ProcessUsage
from seqserve_server.open_inference.model_control import statistics_of

Code = grpc.StatusCode


async def ready(service: Service, name: str, version: str = "") -> bool:
    asked = oip.ModelReadyRequest(name=name, version=version)
    return bool((await service.inference.ModelReady(asked)).ready)


async def test_server_is_live_ready_and_described(service: Service) -> None:
    assert (await service.inference.ServerLive(oip.ServerLiveRequest())).live
    assert (await service.inference.ServerReady(oip.ServerReadyRequest())).ready
    about = await service.inference.ServerMetadata(oip.ServerMetadataRequest())
    assert (about.name, about.version) == ("seqserve", __version__)
    assert "model_configuration" in about.extensions


@pytest.mark.parametrize(
    ("name", "version", "is_ready"),
    [
        ("echo", "", True),
        ("", "", True),
        ("echo", "2", True),
        ("echo", "1", False),
        ("echo", "3", False),
        ("ruin", "", False),
        ("nothing", "", False),
    ],
)
async def test_model_is_ready_if_it_takes_calls(
    service: Service, name: str, version: str, is_ready: bool
) -> None:
    assert await ready(service, name, version) is is_ready


async def test_nothing_is_ready_without_its_engine(service: Service) -> None:
    service.hosts.may_launch.clear()
    service.hosts.last.break_down()
    await until(lambda: not service.remote.status.is_up)
    assert not await ready(service, "echo")
    assert not (await service.inference.ServerReady(oip.ServerReadyRequest())).ready
    index = await service.inference.RepositoryIndex(oip.RepositoryIndexRequest())
    assert {model.state for model in index.models} == {"UNAVAILABLE"}
    assert all(model.reason for model in index.models)
    error = await failure(service.inference.ModelInfer(asking("a")))
    assert error.code() is Code.UNAVAILABLE
    assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
    service.hosts.may_launch.set()


async def test_model_is_described_with_its_loaded_versions(service: Service) -> None:
    asked = oip.ModelMetadataRequest(name="echo")
    metadata = await service.inference.ModelMetadata(asked)
    # Version 1 failed to load.
    assert (metadata.name, list(metadata.versions)) == ("echo", ["2"])
    config = await service.inference.ModelConfig(oip.ModelConfigRequest())
    assert config.config.name == "echo"


class Down:
    """Stands for the client of an engine that has crashed: takes no request."""

    capacity = Ready(slots=1, max_rows=1, cache_bytes=0)
    status = EngineStatus(is_up=False, is_ready=False, last_error="down", restarts=0, pids=())
    refusals = RefusalCache()

    def submit(self, spec: GenerateSpec, receive: Receive) -> int:
        raise ModelUnavailable("down")


@pytest.fixture
def others(service: Service) -> Iterator[None]:
    """Adds ``echo/3`` and ``other/7``, which are loaded and whose engines are down."""
    [model] = service.repository.models()
    down = cast(EngineGroup, Down())
    added = [
        Entry(
            name=name,
            version=version,
            state=ModelState.RESTARTING,
            reason="its engine has failed",
            model=replace(model, manifest=manifest(name, version), engine=down),
        )
        for name, version in (("echo", 3), ("other", 7))
    ]
    for entry in added:
        service.repository.add(entry)
    yield
    for entry in added:
        service.repository.remove(entry)


@pytest.mark.usefixtures("others")
async def test_versions_of_a_model_are_listed_and_a_named_one_answers(service: Service) -> None:
    asked = oip.ModelMetadataRequest(name="echo")
    assert list((await service.inference.ModelMetadata(asked)).versions) == ["2", "3"]
    answer = await service.inference.ModelInfer(asking("a", version="2"))
    assert (answer.model_version, tensors(answer)["text"]) == ("2", ["a"])
    error = await failure(service.inference.ModelInfer(asking("a", version="3")))
    assert error.code() is Code.UNAVAILABLE
    # Without a version, one that is ready answers.
    answer = await service.inference.ModelInfer(asking("a"))
    assert answer.model_version == "2"


async def test_index_lists_all_versions_or_ready_ones(service: Service) -> None:
    asked = oip.RepositoryIndexRequest()
    listed = (await service.inference.RepositoryIndex(asked)).models
    found = [(model.name, model.version, model.state, model.reason) for model in listed]
    assert found == [
        ("echo", "1", "UNAVAILABLE", "weights.bin: damaged"),
        ("echo", "2", "READY", ""),
        ("ruin", "1", "UNAVAILABLE", "manifest.json: damaged"),
    ]
    asked = oip.RepositoryIndexRequest(ready=True)
    listed = (await service.inference.RepositoryIndex(asked)).models
    assert [(model.name, model.version) for model in listed] == [("echo", "2")]


async def test_every_version_of_a_model_is_unloaded(service: Service) -> None:
    unload = oip.RepositoryModelUnloadRequest(model_name="echo")
    # tritonclient always sends this parameter.
    unload.parameters["unload_dependents"].bool_param = False
    await service.inference.RepositoryModelUnload(unload)
    assert not await ready(service, "echo")


async def test_unload_includes_versions_that_are_loading_or_available(service: Service) -> None:
    """No other version may take the place of one that is unloaded."""
    older = Entry(name="echo", version=1, files="whole")
    loaded = service.repository.find("echo", 2)
    newer = Entry(name="echo", version=3, state=ModelState.LOADING)
    service.repository.add(older)
    service.repository.add(newer)
    service.rollout._keep = 1
    may_load = asyncio.Event()

    async def load(entry: Entry) -> None:
        await may_load.wait()
        entry.move(ModelState.FAILED, "its graph is broken")

    service.rollout.deployment._spawn(newer, load)
    unload = oip.RepositoryModelUnloadRequest(model_name="echo")
    call = asyncio.ensure_future(awaited(service.inference.RepositoryModelUnload(unload)))
    try:
        await until(lambda: loaded.state is ModelState.AVAILABLE)
        assert older.state is ModelState.AVAILABLE
        assert {entry.control for entry in (older, loaded, newer)} == {Control.UNLOADED}
        # The answer must wait for the version that still loads.
        assert not call.done()
    finally:
        may_load.set()
    await call


async def test_load_from_an_unreadable_repository_is_unavailable(service: Service) -> None:
    load = oip.RepositoryModelLoadRequest(model_name="echo")
    error = await failure(service.inference.RepositoryModelLoad(load))
    assert error.code() is Code.UNAVAILABLE
    assert "cannot be read" in (error.details() or "")


async def test_load_takes_no_files_from_the_network(service: Service) -> None:
    load = oip.RepositoryModelLoadRequest(model_name="echo")
    load.parameters["file:1/model.onnx"].bytes_param = b"anything"
    field, reason = await invalid(service.inference.RepositoryModelLoad(load))
    assert field == "parameters" and reason.startswith("must be empty")


async def test_unload_of_an_unknown_model_is_not_found(service: Service) -> None:
    unload = oip.RepositoryModelUnloadRequest(model_name="nobody")
    error = await failure(service.inference.RepositoryModelUnload(unload))
    assert error.code() is Code.NOT_FOUND


async def test_malformed_version_is_named_by_every_call(service: Service) -> None:
    for call, kind in (
        (service.inference.ModelReady, oip.ModelReadyRequest),
        (service.inference.ModelMetadata, oip.ModelMetadataRequest),
        (service.inference.ModelConfig, oip.ModelConfigRequest),
    ):
        assert (await invalid(call(kind(name="echo", version="1.0"))))[0] == "version"


async def test_named_repository_is_refused(service: Service) -> None:
    asked = oip.RepositoryIndexRequest(repository_name="second")
    await invalid(service.inference.RepositoryIndex(asked))


Asked = open_inference_pb2.ModelStatisticsRequest
Found = open_inference_pb2.ModelStatistics


async def statistics(service: Service, **asked: str) -> Found:
    [found] = (await service.inference.ModelStatistics(Asked(**asked))).model_stats
    return found


async def test_calls_of_both_protocols_are_counted(service: Service) -> None:
    nothing = await statistics(service, name="echo", version="2")
    assert (nothing.name, nothing.version, nothing.last_inference) == ("echo", "2", 0)
    assert (nothing.inference_count, nothing.execution_count) == (0, 0)
    await service.inference.ModelInfer(asking("a", "bc"))
    await service.generate("d")
    await failure(service.generation.Generate(request("")))
    found = await statistics(service, name="echo")
    figures = found.inference_stats
    assert (figures.success.count, figures.fail.count) == (2, 1)
    # perf_analyzer expects this.
    assert figures.compute_input.count == figures.compute_output.count == 3
    # Texts, of which one call had two.
    assert found.inference_count == figures.queue.count == figures.compute_infer.count == 3
    assert found.execution_count >= 2
    durations = (figures.success, figures.fail, figures.queue, figures.compute_infer)
    assert min(duration.ns for duration in durations) > 0
    assert abs(found.last_inference / 1e3 - time.time()) < 60.0


async def test_calls_that_ask_for_no_answer_are_not_counted(service: Service) -> None:
    asked = open_inference_pb2.ModelMetadataRequest(name="echo", version="2")
    await service.inference.ModelMetadata(asked)
    await service.models.ListModels(model_pb2.ListModelsRequest())
    assert (await statistics(service)).inference_stats.success.count == 0


@pytest.mark.parametrize(("name", "version"), [("", ""), ("", "2"), ("echo", ""), ("echo", "2")])
async def test_only_loaded_versions_have_figures(service: Service, name: str, version: str) -> None:
    found = await statistics(service, name=name, version=version)
    assert (found.name, found.version) == ("echo", "2")


@pytest.mark.parametrize(("name", "version"), [("x", ""), ("echo", "9"), ("", "9")])
async def test_unknown_model_has_no_statistics(service: Service, name: str, version: str) -> None:
    error = await failure(service.inference.ModelStatistics(Asked(name=name, version=version)))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_version_that_failed_to_load_has_none(service: Service) -> None:
    response = await service.inference.ModelStatistics(Asked(name="echo", version="1"))
    assert list(response.model_stats) == []


async def test_figures_survive_the_end_of_an_engine(service: Service) -> None:
    await service.generate("a")
    before = await statistics(service)
    service.hosts.may_launch.clear()
    service.hosts.last.break_down()
    while service.remote.status.is_up:
        await service.inference.ServerLive(open_inference_pb2.ServerLiveRequest())
    assert (await statistics(service)).inference_count == before.inference_count == 1
    service.hosts.may_launch.set()


def test_memory_is_told_where_it_is_known() -> None:
    calls = {Kind("GRPCInferenceService.ModelInfer", "OK"): Calls()}
    found = statistics_of("m", 1, calls, EngineStats(), ProcessUsage(1e6, 1.0))
    assert [(usage.type, usage.byte_size) for usage in found.memory_usage] == [("CPU", 1_000_000)]
    assert not statistics_of("m", 1, calls, EngineStats(), None).memory_usage
