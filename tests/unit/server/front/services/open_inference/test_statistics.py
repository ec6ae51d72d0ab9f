import time

import grpc
import pytest
from tests.unit.server.front.calls import failure, request
from tests.unit.server.front.service import Service
from tests.unit.server.front.services.open_inference.tensor import asking

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import model_pb2
from seqserve_server.contract.stats import EngineStats
from seqserve_server.front.services.open_inference.model_control import statistics_of
from seqserve_server.front.telemetry.call_metrics import Calls, Kind
from seqserve_server.front.telemetry.engine_metrics import ProcessUsage

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
