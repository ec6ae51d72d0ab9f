import asyncio

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from tests.unit.server.front.calls import batch, bulk, details, failure, invalid, request, text_of
from tests.unit.server.front.echo import MAX_SOURCE, MAX_TARGET, PATIENCE_S
from tests.unit.server.front.service import Service, busy, serving, until

from seqserve.open_inference import open_inference_pb2 as oip
from seqserve.v1 import model_pb2
from seqserve_server.front.models.lifecycle import ModelState

UNLOAD = model_pb2.UnloadModelRequest(model="echo", version=2)


async def test_every_version_is_listed(service: Service) -> None:
    answer = await service.models.ListModels(model_pb2.ListModelsRequest())
    found = [(model.name, model.version, model.state, model.is_default) for model in answer.models]
    ready, failed = model_pb2.MODEL_STATE_READY, model_pb2.MODEL_STATE_FAILED
    assert found == [
        ("echo", 1, failed, False),
        ("echo", 2, ready, True),
        ("ruin", 1, failed, False),
    ]
    assert answer.models[0].state_reason == "weights.bin: damaged"


async def test_default_model_is_described_in_full(service: Service) -> None:
    answer = await service.models.GetModel(model_pb2.GetModelRequest())
    assert answer.model == model_pb2.Model(
        name="echo",
        version=2,
        state=model_pb2.MODEL_STATE_READY,
        is_default=True,
        precision="fp32",
        provider="cpu",
        max_source_length=MAX_SOURCE,
        max_target_length=MAX_TARGET,
        vocabulary_size=260,
        description="answers with the source",
        licence="Apache-2.0",
        traffic_share=1.0,
        slots=4,
    )


async def test_load_is_that_of_now() -> None:
    async with busy(2) as service:
        listed = await service.models.ListModels(model_pb2.ListModelsRequest())
        model = listed.models[1]
        assert (model.slots, model.slots_in_use, model.queue_depth) == (1, 1, 2)
        service.runtime.may_run.set()
        await until(lambda: not service.engine.slots_in_use)
        found = await service.models.GetModel(model_pb2.GetModelRequest())
        assert (found.model.slots_in_use, found.model.queue_depth) == (0, 0)


@pytest.mark.parametrize(("name", "version"), [("nobody", 0), ("echo", 3), ("", 7)])
async def test_unknown_version_is_not_found(service: Service, name: str, version: int) -> None:
    asked = model_pb2.GetModelRequest(model=name, version=version)
    error = await failure(service.models.GetModel(asked))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "echo/1, echo/2, ruin/1" in (error.details() or "")


async def test_unloaded_version_takes_no_calls(service: Service) -> None:
    unloaded = model_pb2.Model(name="echo", version=2, state=model_pb2.MODEL_STATE_AVAILABLE)
    assert (await service.models.UnloadModel(UNLOAD)).model == unloaded
    error = await failure(service.generate("a"))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def unloading(service: Service) -> asyncio.Future[None]:
    """Unloads the version that has the only call under way."""
    await until(lambda: service.engine.slots_in_use == 1)
    unload = asyncio.ensure_future(service.models.UnloadModel(UNLOAD))
    await until(lambda: service.repository.find("echo", 2).state is ModelState.DRAINING)
    return unload


async def test_running_stream_keeps_its_version(service: Service) -> None:
    service.runtime.may_run.clear()
    stream = service.generation.GenerateStream(request("streamed"))
    unload = await unloading(service)
    listed = await service.models.ListModels(model_pb2.ListModelsRequest())
    assert listed.models[1].state == model_pb2.MODEL_STATE_DRAINING
    error = await failure(service.generate("new"))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    service.runtime.may_run.set()
    assert await text_of(stream) == "streamed"
    await unload


async def test_batch_keeps_its_version_until_its_last_source() -> None:
    async with serving(slots=1) as service:
        service.runtime.may_run.clear()
        call = asyncio.ensure_future(service.generation.GenerateBatch(batch("a", "b", "c")))
        unload = await unloading(service)
        service.runtime.may_run.set()
        texts = [outcome.response.hypotheses[0].text for outcome in (await call).outcomes]
        assert texts == ["a", "b", "c"]
        await unload


async def test_unload_requires_a_version(service: Service) -> None:
    asked = model_pb2.UnloadModelRequest(model="echo")
    assert (await invalid(service.models.UnloadModel(asked)))[0] == "version"


async def test_load_from_an_unreadable_repository_is_unavailable(service: Service) -> None:
    error = await failure(service.models.LoadModel(model_pb2.LoadModelRequest(model="echo")))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "cannot be read" in (error.details() or "")


async def test_set_traffic_gives_shares_to_ready_versions(service: Service) -> None:
    asked = model_pb2.SetTrafficRequest(weights={1: 90, 2: 10})
    answer = await service.models.SetTraffic(asked)
    shares = [(model.version, model.traffic_share) for model in answer.models]
    # Version 1 has failed, so its share goes to the other.
    assert shares == [(1, 0.0), (2, 1.0)]
    unknown = model_pb2.SetTrafficRequest(model="echo", weights={9: 1})
    assert (await failure(service.models.SetTraffic(unknown))).code() is grpc.StatusCode.NOT_FOUND
    for weights in ({0: 1}, {2: 0}, {2: (1 << 32) - 1}):
        await invalid(service.models.SetTraffic(model_pb2.SetTrafficRequest(weights=weights)))


async def test_bulk_call_releases_a_version_between_requests(service: Service) -> None:
    call = service.generation.GenerateBulk()
    await call.write(bulk(1, "first"))
    assert (await call.read()).id == 1
    await service.models.UnloadModel(UNLOAD)
    await call.write(bulk(2, "second"))
    assert (await call.read()).outcome.failure.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    await call.done_writing()


async def test_draining_server_refuses_changes_to_models(service: Service) -> None:
    service.runtime.may_run.clear()
    stream = service.generation.GenerateStream(request("streamed"))
    await until(lambda: service.engine.slots_in_use == 1)
    drained = asyncio.ensure_future(service.server.drain(PATIENCE_S))
    await until(lambda: not service.server.is_ready)
    models, inference = service.models, service.inference
    for call in (
        models.LoadModel(model_pb2.LoadModelRequest(model="echo", version=1)),
        models.UnloadModel(UNLOAD),
        models.SetTraffic(model_pb2.SetTrafficRequest(weights={2: 1})),
        inference.RepositoryModelLoad(oip.RepositoryModelLoadRequest(model_name="echo")),
        inference.RepositoryModelUnload(oip.RepositoryModelUnloadRequest(model_name="echo")),
    ):
        error = await failure(call)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert details(error, ErrorInfo).reason == "DRAINING"
        assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
    service.runtime.may_run.set()
    assert await text_of(stream) == "streamed"
    assert await drained
