"""The whole server for a test: real gRPC, real front, real engine, and a model that echoes.

``Service`` stands for a running ``seqserve serve``. Two things are not real: the engine runs in a
thread (``ThreadHost``) instead of a process of its own, at the other end of a real socket, and
``EchoRuntime`` computes instead of ONNX Runtime. So a test calls through gRPC and can look at the
engine's slots and queue.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.server.front.calls import request
from tests.unit.server.front.echo import PATIENCE_S, EchoRuntime, byte_tokenizer, manifest
from tests.unit.server.front.engine_client.thread_host import ThreadHost

from seqserve.open_inference import open_inference_pb2_grpc
from seqserve.v1 import generation_pb2_grpc, model_pb2_grpc
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Template
from seqserve_server.contract.limits import CacheScope, EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.contract.request import Spec
from seqserve_server.engine.engine import Engine
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.engine_client.engine import Receive, RefusalCache
from seqserve_server.front.engine_client.group import LaunchedGroup
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.models.loader import Loader
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.security.protection import Security
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.serve.server import Server
from seqserve_server.text.glossary_folder import GlossaryFolder

if TYPE_CHECKING:
    from seqserve_server.front.telemetry.tracing import Tracing


Answer = TypeVar("Answer")


class Hosts:
    """Stands for the launcher of engine processes: starts one thread host after the other.

    A test clears ``may_launch`` to keep a crashed engine from being restarted.
    """

    def __init__(self, runtime: EchoRuntime, limits: EngineLimits) -> None:
        self.runtime, self._limits = runtime, limits
        self._launched: list[ThreadHost] = []
        self.may_launch = threading.Event()
        self.may_launch.set()

    def launch(self) -> ThreadHost:
        assert self.may_launch.wait(PATIENCE_S)
        self._launched.append(ThreadHost(self.runtime, self._limits, byte_tokenizer().decode))
        return self.last

    @property
    def last(self) -> ThreadHost:
        return self._launched[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running server, the parts of it that tests look at, and a channel to it."""

    server: Server
    rollout: Rollout
    repository: Repository
    remote: LaunchedGroup
    hosts: Hosts
    runtime: EchoRuntime
    metrics: Metrics
    channel: Any
    others: Mapping[str, Hosts]
    """The launchers of the other models, by their names."""

    @property
    def engine(self) -> Engine:
        """The engine at the other end of the socket."""
        return self.hosts.last.engine

    @property
    def generation(self) -> Any:
        return generation_pb2_grpc.GenerationServiceStub(self.channel)

    async def generate(self, source: str, **options: Any) -> Any:
        return await self.generation.Generate(request(source, **options))

    @property
    def models(self) -> Any:
        return model_pb2_grpc.ModelServiceStub(self.channel)

    @property
    def inference(self) -> Any:
        return open_inference_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    async def value(self, name: str, **labels: str) -> float:
        """The sum of the series with these labels, and perhaps others, at a scrape."""
        # In a thread: a scrape waits for the engine, which answers through this loop.
        families = await asyncio.to_thread(lambda: list(self.metrics.registry.collect()))
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == f"seqserve_{name}" and labels.items() <= sample.labels.items()
        )

    async def until_value(self, value: float, name: str, **labels: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.value(name, **labels) != value:
                await asyncio.sleep(0.002)

    async def scraped(self) -> dict[str, set[frozenset[str]]]:
        """Names of all metric families, each with the label sets of its samples."""
        text = (await asyncio.to_thread(generate_latest, self.metrics.registry)).decode()
        return {
            family.name: {frozenset(sample.labels) - {"le"} for sample in family.samples}
            for family in text_string_to_metric_families(text)
        }


def rollout_of(repository: Repository, metrics: Metrics) -> Rollout:
    """A rollout of models that are loaded already, over a folder that does not exist."""
    loader = Loader(
        repository=Path("nowhere"),
        provider=Provider.CPU,
        threads=1,
        limits=EngineLimits(workers=1, slots=1, max_queue=1, max_source_tokens_per_step=1),
        launch=_launch_nothing,
    )
    rollout = Rollout(repository, loader, metrics)
    for entry in repository.entries:
        if entry.model is not None:
            rollout.deployment.engines[entry] = cast(LaunchedGroup, entry.model.engine)
    return rollout


def _launch_nothing(setup: Setup) -> ThreadHost:
    raise AssertionError(f"{setup.folder} was to be loaded")


@asynccontextmanager
async def serving(
    *,
    slots: int = 4,
    max_queue: int = 16,
    caller_share: float = 1.0,
    cache_bytes: int = 0,
    cache_scope: CacheScope = CacheScope.CALLER,
    security: Security | None = None,
    tracing: Tracing | None = None,
    template: Template | None = None,
    refusals: RefusalCache | None = None,
    others: Mapping[str, Template] | None = None,
    default: str = "",
    glossaries: Path | None = None,
    **options: Any,
) -> AsyncIterator[Service]:
    """Serves ``echo/2``, beside ``echo/1`` and ``ruin/1``, which failed to load.

    ``others`` are more models that echo, each with an engine of its own, by their names;
    ``options`` are those of the command.
    """
    metrics = Metrics()
    cache = AnswerCache(cache_bytes, metrics.cache_counts, cache_scope)
    limits = EngineLimits(
        workers=1,
        slots=slots,
        max_queue=max_queue,
        max_source_tokens_per_step=64,
        caller_share=caller_share,
    )

    def loaded(described: Manifest, refusals: RefusalCache | None = None) -> ServedModel:
        name, version = described.name, described.version
        launchers[name] = Hosts(EchoRuntime(described), limits)
        engine = LaunchedGroup([launchers[name].launch], label=described.label, refusals=refusals)
        engine.load()
        metrics.model_loaded(name, version, "fp32", "cpu", engine, 0.0)
        answers = cache.version(name, version) if cache_bytes and name == "echo" else None
        return ServedModel(
            manifest=described,
            tokenizer=byte_tokenizer(),
            engine=engine,
            provider=Provider.CPU,
            answers=answers,
        )

    launchers: dict[str, Hosts] = {}
    model = loaded(replace(manifest(version=2), template=template), refusals)
    hosts = launchers.pop("echo")
    entries = [
        Entry(name="echo", version=1, state=ModelState.FAILED, reason="weights.bin: damaged"),
        Entry(name="echo", version=2, state=ModelState.READY, model=model),
        Entry(name="ruin", version=1, state=ModelState.FAILED, reason="manifest.json: damaged"),
    ]
    for name, own in (others or {}).items():
        other = loaded(replace(manifest(name), template=own))
        entries.append(Entry(name=name, version=1, state=ModelState.READY, model=other))
    repository = Repository(entries)
    repository.choose_default(default)
    rollout = rollout_of(repository, metrics)
    listed = GlossaryFolder(glossaries)
    listed.open()
    settings = ServeOptions(port=0, **({"max_message_bytes": 1 << 20} | options))
    server = Server(settings, rollout, metrics, security, tracing, listed)
    try:
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Service(
                server=server,
                rollout=rollout,
                repository=repository,
                remote=cast(LaunchedGroup, model.engine),
                hosts=hosts,
                runtime=hosts.runtime,
                metrics=metrics,
                channel=channel,
                others=launchers,
            )
    finally:
        # A gRPC server that was not stopped hangs when it is freed.
        for stopped in (hosts, *launchers.values()):
            stopped.runtime.may_run.set()
            stopped.runtime.go_on()
            stopped.runtime.may_score.set()
        await server.drain(PATIENCE_S)


async def stepwise(service: Service, awaited: Awaitable[Answer]) -> Answer:
    """Lets a held engine make a step now and then, until something has come."""
    coming = asyncio.ensure_future(awaited)
    async with asyncio.timeout(PATIENCE_S):
        while not coming.done():
            service.runtime.allow()
            await asyncio.wait([coming], timeout=0.002)
    return await coming


async def until(is_so: Callable[[], bool]) -> None:
    """Waits until a condition holds; fails after a timeout."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.002)


def noted_specs(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """Gives the requests that the engine of a service is sent, as they come."""
    sent: list[Spec] = []
    submit = service.remote.submit

    def note(spec: Spec, receive: Receive) -> int:
        sent.append(spec)
        return submit(spec, receive)

    monkeypatch.setattr(service.remote, "submit", note)
    return sent


@asynccontextmanager
async def busy(waiting: int = 0, slots: int = 1, **settings: Any) -> AsyncIterator[Service]:
    """A service with a call that runs and others that wait; all are answered in the end."""
    async with serving(slots=slots, **settings) as service:
        service.runtime.may_run.clear()
        calls = [asyncio.create_task(service.generate("other"))]
        await until(lambda: service.engine.slots_in_use == 1)
        calls += [asyncio.create_task(service.generate("other")) for _ in range(waiting)]
        await until(lambda: service.engine.queue_depth == waiting)
        yield service
        service.runtime.may_run.set()
        answers = await asyncio.gather(*calls)
        assert {answer.hypotheses[0].text for answer in answers} == {"other"}
