import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from tests.certificates import Certificates
from tests.resources import own_resources
from tests.support.logged import fields_of
from tests.unit.server.front.calls import (
    batch,
    bulk,
    details,
    ended,
    failure,
    invalid,
    request,
    text_of,
    trailers,
)
from tests.unit.server.front.echo import PATIENCE_S, echo_model, manifest
from tests.unit.server.front.service import Service, rollout_of, serving, until
from tests.unit.server.open_inference.tensor import asking

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2_grpc, model_pb2
from seqserve_server.contract.errors import StartupError
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.security.protection import Security, certificates_of
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.serve import server as module
from seqserve_server.serve.server import Server

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def asked(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


async def health(service: Service, name: str) -> int:
    answer = await health_pb2_grpc.HealthStub(service.channel).Check(asked(name))
    return int(answer.status)


async def until_health(service: Service, name: str, status: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await health(service, name) != status:
            await asyncio.sleep(0.002)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("", SERVING),
        ("seqserve.v1.GenerationService", SERVING),
        ("seqserve.v1.ModelService", SERVING),
        ("inference.GRPCInferenceService", SERVING),
        ("echo", SERVING),
        ("echo/2", SERVING),
        ("echo/1", NOT_SERVING),
        ("ruin", NOT_SERVING),
    ],
)
async def test_health_of_services_and_versions(service: Service, name: str, status: int) -> None:
    assert await health(service, name) == status


async def test_health_follows_the_versions(service: Service) -> None:
    stub = health_pb2_grpc.HealthStub(service.channel)
    watches = [stub.Watch(asked(name)) for name in ("", "echo/2")]
    for watch in watches:
        assert (await watch.read()).status == SERVING
    entry = service.repository.find("echo", 2)
    await service.rollout.unload("echo", 2)
    for watch in watches:
        assert (await watch.read()).status == NOT_SERVING
    assert not service.server.is_ready
    entry.mark_missing()
    await service.rollout.unload("echo", 2)
    assert (await watches[1].read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    for name in ("echo/2", "never/1"):
        assert (await failure(health(service, name))).code() is grpc.StatusCode.NOT_FOUND
    for watch in watches:
        watch.cancel()


REFLECTION = [f"grpc.reflection.{version}.ServerReflection" for version in ("v1", "v1alpha")]


async def reflected(
    service: Service, name: str, **asked: str
) -> reflection_pb2.ServerReflectionResponse:
    # The messages of both versions are alike.
    request = reflection_pb2.ServerReflectionRequest(**asked).SerializeToString()
    call = service.channel.stream_stream(f"/{name}/ServerReflectionInfo")(iter([request]))
    return reflection_pb2.ServerReflectionResponse.FromString(await anext(aiter(call)))


@pytest.mark.parametrize("name", REFLECTION)
async def test_reflection_lists_and_describes_the_services(service: Service, name: str) -> None:
    listing = await reflected(service, name, list_services="")
    names = {found.name for found in listing.list_services_response.service}
    assert {"seqserve.v1.GenerationService", "seqserve.v1.ModelService", *REFLECTION} <= names
    assert {"grpc.health.v1.Health", "inference.GRPCInferenceService"} <= names
    for each in names:
        answer = await reflected(service, name, file_containing_symbol=each)
        assert answer.file_descriptor_response.file_descriptor_proto, each


@pytest.mark.parametrize("method", ["Health/Check", "Health/Watch", "Health/List"])
async def test_malformed_request_to_health_is_invalid(service: Service, method: str) -> None:
    call = service.channel.unary_stream(f"/grpc.health.v1.{method}")
    assert (await invalid(call(b"\x0a\x02\xc3\x28\xff")))[0] == "request"


@pytest.mark.parametrize("name", REFLECTION)
async def test_malformed_request_to_reflection_is_invalid(service: Service, name: str) -> None:
    path = f"/{name}/ServerReflectionInfo"
    listing = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    call = service.channel.stream_stream(path)(iter([listing, b"\x1a\x02\xc3\x28", listing]))
    answer = reflection_pb2.ServerReflectionResponse.FromString(await anext(aiter(call)))
    assert answer.list_services_response.service
    assert (await invalid(call))[0] == "request"


async def test_health_lists_no_models(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    error = await failure(service.channel.unary_unary("/grpc.health.v1.Health/List")(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "ListModels" in (error.details() or "")
    assert caplog.text == ""


async def test_port_in_use_fails_the_start(service: Service) -> None:
    options = ServeOptions(port=service.server.port)
    with pytest.raises(StartupError, match=f"127.0.0.1:{service.server.port}"):
        Server(options, rollout_of(service.repository, Metrics()), Metrics())


async def test_key_that_grpc_refuses_is_told(certificates: Certificates, tmp_path: Path) -> None:
    certificate, key = certificates.server
    # PKCS #8 with a version that does not exist.
    later = tmp_path / "later.key"
    later.write_text(key.read_text().replace("MIGHAgEA", "MIGHAgEE"))
    security = Security(certificates=certificates_of(certificate, later, None))
    with pytest.raises(StartupError, match="or gRPC refuses the files of --tls-certificate"):
        Server(ServeOptions(port=0), rollout_of(Repository(), Metrics()), Metrics(), security)


async def test_drain_finishes_accepted_calls_and_refuses_new_ones() -> None:
    async with serving(slots=1) as service:
        service.runtime.may_run.clear()
        stream = service.generation.GenerateStream(request("streamed"))
        streamed = asyncio.create_task(text_of(stream))
        await until(lambda: service.engine.slots_in_use == 1)
        queued = asyncio.create_task(service.generate("queued"))
        many = batch(*"abcd")
        accepted = asyncio.ensure_future(service.generation.GenerateBatch(many))
        await until(lambda: service.engine.queue_depth == 2)
        drained = asyncio.ensure_future(service.server.drain(PATIENCE_S))
        await until(lambda: not service.server.is_ready)
        assert await health(service, "") == await health(service, "echo") == NOT_SERVING
        # A new batch is refused as a whole, so that the client sends all of it elsewhere.
        for call in (service.generate("new"), service.generation.GenerateBatch(many)):
            error = await failure(call)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert details(error, RetryInfo) is not None
        assert not drained.done()
        service.runtime.may_run.set()
        assert (await queued).hypotheses[0].text == "queued"
        answers = [outcome.response.hypotheses[0].text for outcome in (await accepted).outcomes]
        assert (await streamed, answers) == ("streamed", ["a", "b", "c", "d"])
        assert await drained


async def test_drain_ends_calls_at_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(slots=8) as service:
        service.runtime.may_run.clear()
        generation, inference = service.generation, service.inference
        calls = {
            "GenerationService.Generate": generation.Generate(request("a")),
            "GenerationService.GenerateStream": generation.GenerateStream(request("a")),
            "GenerationService.GenerateBatch": generation.GenerateBatch(batch("a", "b")),
            "GenerationService.GenerateBulk": generation.GenerateBulk([bulk(1, "a")] * 2),
            "GRPCInferenceService.ModelInfer": inference.ModelInfer(asking("a")),
            "GRPCInferenceService.ModelStreamInfer": inference.ModelStreamInfer([asking("a")]),
        }
        errors = asyncio.gather(*map(failure, calls.values()))
        # Some requests run and the others wait.
        await until(lambda: service.engine.slots_in_use + service.engine.queue_depth == 8)
        asyncio.get_running_loop().call_later(0.3, service.runtime.may_run.set)
        assert not await service.server.drain(0.1)
        for error in await errors:
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
            assert details(error, ErrorInfo).reason == "DRAINING"
            assert trailers(error)["x-request-id"]
        ids = {trailers(error)["x-request-id"] for error in errors.result()}
        lines = [line for line in fields_of(caplog) if "method" in line]
        assert {line["method"] for line in lines} == set(calls)
        assert {line["id"] for line in lines} == ids
        reasons = [(line["code"], line["reason"]) for line in lines]
        assert reasons == [("UNAVAILABLE", "DRAINING")] * len(calls)
        for method in calls:
            labels = {"method": method, "code": "UNAVAILABLE", "model": "echo"}
            await service.until_value(1, "requests_total", **labels)


async def test_drain_at_its_timeout_does_not_wait_for_a_client_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "_FLUSH_S", 0.1)
    narrow = [("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0)]
    async with serving() as service:
        # Slow enough that others still run when the first is done.
        service.runtime.step_s = 0.001
        target = f"127.0.0.1:{service.server.port}"
        async with grpc.aio.insecure_channel(target, options=narrow) as channel:
            call = generation_pb2_grpc.GenerationServiceStub(channel).GenerateBulk(
                [bulk(1, "a" * 40)] * 99
            )
            await anext(aiter(call))
            # The call is still open when the server drains: its responses wait for the client.
            assert not await asyncio.wait_for(service.server.drain(0.1), PATIENCE_S)
            assert (await failure(call)).code() is grpc.StatusCode.UNAVAILABLE
            [line] = fields_of(caplog)
            assert (line["code"], line["reason"]) == ("UNAVAILABLE", "DRAINING")


async def test_health_watchers_do_not_delay_the_drain(service: Service) -> None:
    watch = health_pb2_grpc.HealthStub(service.channel).Watch(asked("echo"))
    assert (await watch.read()).status == SERVING
    assert await asyncio.wait_for(service.server.drain(3600), PATIENCE_S)
    assert (await watch.read()).status == NOT_SERVING


class Drained:
    """Stands for the client of an engine; records its starts and stops."""

    slots = cache_bytes = 0
    is_up = is_ready = True

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def watch(self, on_change: Callable[[], None]) -> None:
        pass

    async def start(self) -> None:
        self._notes.append("start")

    async def stop(self) -> None:
        self._notes.append("stop")


async def test_drain_stops_every_engine() -> None:
    notes: list[str] = []
    engine = cast(EngineGroup, Drained(notes))
    models = [replace(echo_model(manifest(f"m-{number}")), engine=engine) for number in range(3)]
    entries = [
        Entry(name=model.manifest.name, version=1, state=ModelState.READY, model=model)
        for model in models
    ]
    metrics = Metrics()
    server = Server(ServeOptions(port=0), rollout_of(Repository(entries), metrics), metrics)
    await server.start()
    assert await server.drain(5.0)
    assert notes == ["start"] * 3 + ["stop"] * 3


# ---- an engine that crashes


async def test_all_say_the_same_of_a_version_whose_engine_restarts(service: Service) -> None:
    label = {"model": "echo", "version": "2"}
    service.hosts.may_launch.clear()
    service.hosts.last.break_down()
    await until_health(service, "echo/2", NOT_SERVING)
    assert not service.server.is_ready
    assert await service.value("model_state", **label, state="restarting") == 1
    assert await service.value("model_state", **label, state="ready") == 0
    model = (await service.models.GetModel(model_pb2.GetModelRequest(version=2))).model
    assert model.state == model_pb2.MODEL_STATE_RESTARTING
    assert model.state_reason == "its engine has failed and is started again"
    assert (model.traffic_share, model.is_default) == (0.0, False)
    ready = open_inference_pb2.ModelReadyRequest(name="echo", version="2")
    assert not (await service.inference.ModelReady(ready)).ready
    service.hosts.may_launch.set()
    await until_health(service, "echo/2", SERVING)
    assert await service.value("model_state", **label, state="ready") == 1
    model = (await service.models.GetModel(model_pb2.GetModelRequest(version=2))).model
    assert (model.state, model.traffic_share) == (model_pb2.MODEL_STATE_READY, 1.0)


async def test_server_drains_without_its_engine(service: Service) -> None:
    service.hosts.may_launch.clear()
    service.hosts.last.break_down()
    await until(lambda: not service.remote.status.is_up)
    assert await asyncio.wait_for(service.server.drain(3600), PATIENCE_S)
    service.hosts.may_launch.set()


async def _mixed(service: Service) -> None:
    """Makes calls of each kind: three that succeed, one that fails, two that are cancelled."""
    await service.generate("good")
    await text_of(service.generation.GenerateStream(request("streamed")))
    await failure(service.generate(""))
    left = service.generation.GenerateStream(request("left"))
    await left.read()
    left.cancel()
    requests = [bulk(number, "one of many") for number in range(6)]
    assert len(await ended(service.generation.GenerateBulk(requests))) == 6
    left = service.generation.GenerateBulk(requests)
    await left.read()
    left.cancel()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files by /proc")
async def test_calls_leak_no_memory_files_or_tasks(service: Service) -> None:
    for _ in range(5):
        await _mixed(service)
    await until(lambda: service.engine.slots_in_use == 0)
    before = own_resources()
    for _ in range(50):
        await _mixed(service)
    await until(lambda: service.engine.slots_in_use == 0)
    await until(lambda: own_resources() <= before)
    assert service.engine.queue_depth == 0
