import asyncio

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from tests.unit.server.front.echo import MAX_SOURCE, MAX_TARGET, PATIENCE_S
from tests.unit.server.front.service import Service, details, failure, serving, until
from tests.unit.server.front.service import request as generate

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2, model_pb2
from seqserve_server.front.models.lifecycle import ModelState


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
    async with serving(slots=1) as service:
        service.runtime.may_run.clear()
        calls = [
            asyncio.ensure_future(service.generation.Generate(generate(text))) for text in "abc"
        ]
        await until(lambda: service.engine.slots_in_use == 1 and service.engine.queue_depth == 2)
        listed = await service.models.ListModels(model_pb2.ListModelsRequest())
        model = listed.models[1]
        assert (model.slots, model.slots_in_use, model.queue_depth) == (1, 1, 2)
        service.runtime.may_run.set()
        await asyncio.gather(*calls)
        await until(lambda: not service.engine.slots_in_use)
        found = await service.models.GetModel(model_pb2.GetModelRequest())
        assert (found.model.slots_in_use, found.model.queue_depth) == (0, 0)


@pytest.mark.parametrize(("name", "version"), [("nobody", 0), ("echo", 3), ("", 7)])
async def test_unknown_version_is_not_found(service: Service, name: str, version: int) -> None:
    request = model_pb2.GetModelRequest(model=name, version=version)
    error = await failure(service.models.GetModel(request))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "echo/1, echo/2, ruin/1" in (error.details() or "")


async def test_unloaded_version_takes_no_calls(service: Service) -> None:
    request = model_pb2.UnloadModelRequest(model="echo", version=2)
    answer = await service.models.UnloadModel(request)
    assert answer.model == model_pb2.Model(
        name="echo", version=2, state=model_pb2.MODEL_STATE_AVAILABLE
    )
    error = await failure(service.generation.Generate(generate("a")))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_running_stream_keeps_its_version(service: Service) -> None:
    service.runtime.may_run.clear()
    stream = service.generation.GenerateStream(generate("streamed"))
    await until(lambda: service.engine.slots_in_use == 1)
    request = model_pb2.UnloadModelRequest(model="echo", version=2)
    unload = asyncio.ensure_future(service.models.UnloadModel(request))
    await until(lambda: service.repository.find("echo", 2).state is ModelState.DRAINING)
    listed = await service.models.ListModels(model_pb2.ListModelsRequest())
    assert listed.models[1].state == model_pb2.MODEL_STATE_DRAINING
    error = await failure(service.generation.Generate(generate("new")))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    service.runtime.may_run.set()
    assert "".join([message.piece.text async for message in stream]) == "streamed"
    await unload


async def test_batch_keeps_its_version_until_its_last_source() -> None:
    async with serving(slots=1) as service:
        service.runtime.may_run.clear()
        batch = generation_pb2.GenerateBatchRequest(sources=["a", "b", "c"])
        call = asyncio.ensure_future(service.generation.GenerateBatch(batch))
        await until(lambda: service.engine.slots_in_use == 1)
        request = model_pb2.UnloadModelRequest(model="echo", version=2)
        unload = asyncio.ensure_future(service.models.UnloadModel(request))
        await until(lambda: service.repository.find("echo", 2).state is ModelState.DRAINING)
        service.runtime.may_run.set()
        texts = [outcome.response.hypotheses[0].text for outcome in (await call).outcomes]
        assert texts == ["a", "b", "c"]
        await unload


async def test_unload_requires_a_version(service: Service) -> None:
    error = await failure(service.models.UnloadModel(model_pb2.UnloadModelRequest(model="echo")))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error, BadRequest).field_violations[0].field == "version"


async def test_load_from_an_unreadable_repository_is_unavailable(service: Service) -> None:
    error = await failure(service.models.LoadModel(model_pb2.LoadModelRequest(model="echo")))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "cannot be read" in (error.details() or "")


async def test_set_traffic_gives_shares_to_ready_versions_only(service: Service) -> None:
    request = model_pb2.SetTrafficRequest(weights={1: 90, 2: 10})
    answer = await service.models.SetTraffic(request)
    shares = [(model.version, model.traffic_share) for model in answer.models]
    # Version 1 has failed, so its share goes to the other.
    assert shares == [(1, 0.0), (2, 1.0)]


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        ({9: 1}, grpc.StatusCode.NOT_FOUND),
        ({0: 1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({2: 0}, grpc.StatusCode.INVALID_ARGUMENT),
        ({2: (1 << 32) - 1}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_bad_traffic_weights_are_refused(
    service: Service, weights: dict[int, int], code: grpc.StatusCode
) -> None:
    request = model_pb2.SetTrafficRequest(model="echo", weights=weights)
    error = await failure(service.models.SetTraffic(request))
    assert error.code() is code


async def test_bulk_call_releases_a_version_between_requests(service: Service) -> None:
    call = service.generation.GenerateBulk()
    await call.write(generation_pb2.GenerateBulkRequest(id=1, request=generate("first")))
    assert (await call.read()).id == 1
    await service.models.UnloadModel(model_pb2.UnloadModelRequest(model="echo", version=2))
    await call.write(generation_pb2.GenerateBulkRequest(id=2, request=generate("second")))
    assert (await call.read()).outcome.failure.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    await call.done_writing()


async def test_draining_server_refuses_changes_to_models() -> None:
    async with serving() as service:
        service.runtime.may_run.clear()
        stream = service.generation.GenerateStream(generate("streamed"))
        await until(lambda: service.engine.slots_in_use == 1)
        drained = asyncio.ensure_future(service.server.drain(PATIENCE_S))
        await until(lambda: not service.server.is_ready)
        models, inference = service.models, service.inference
        for call in (
            models.LoadModel(model_pb2.LoadModelRequest(model="echo", version=1)),
            models.UnloadModel(model_pb2.UnloadModelRequest(model="echo", version=2)),
            models.SetTraffic(model_pb2.SetTrafficRequest(weights={2: 1})),
            inference.RepositoryModelLoad(
                open_inference_pb2.RepositoryModelLoadRequest(model_name="echo")
            ),
            inference.RepositoryModelUnload(
                open_inference_pb2.RepositoryModelUnloadRequest(model_name="echo")
            ),
        ):
            error = await failure(call)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert details(error, ErrorInfo).reason == "DRAINING"
            assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
        service.runtime.may_run.set()
        assert "".join([message.piece.text async for message in stream]) == "streamed"
        assert await drained
