"""``seqserve serve``: puts the parts together, runs until it is told to stop, drains, ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from seqserve.errors import OptionError
from seqserve.options import parse
from seqserve.v1 import generation_pb2, generation_pb2_grpc, model_pb2, model_pb2_grpc
from seqserve_server import logs
from seqserve_server.config import ServeOptions
from seqserve_server.engine.engine import EngineLimits
from seqserve_server.engine.request import Event, Request
from seqserve_server.metrics import Metrics
from seqserve_server.repository import Loader, Repository
from seqserve_server.rpc.generation import GenerationServicer
from seqserve_server.rpc.interceptor import CallInterceptor
from seqserve_server.rpc.models import ModelServicer
from seqserve_server.runtime import check_provider
from seqserve_server.scrape import ScrapeServer

_SERVICES = (
    generation_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name,
    model_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
)
# After the last answer is computed, how long its bytes may take to leave.
_FLUSH_S = 5.0

_EPILOG = """\
examples:
  seqserve serve                                    models/ on localhost:50051
  seqserve serve --model-repository /srv/models --host 0.0.0.0
  SEQSERVE_SLOTS=128 SEQSERVE_LOG_FORMAT=json seqserve serve
"""


class LoopDelivery:
    """Brings events from the engine's threads into the event loop, once per step."""

    def __init__(self) -> None:
        """Begins without a loop; nothing runs before there is one."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the loop whose coroutines wait for events."""
        self._loop = loop

    def __call__(self, events: list[tuple[Request, Event]]) -> None:
        """Hands events over; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_receive, events)


def _receive(events: list[tuple[Request, Event]]) -> None:
    for request, event in events:
        request.receive(event)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve serve``.

    Raises:
        SeqserveError: The server cannot start; the message says why and what to do.
    """
    options = parse(
        ServeOptions,
        sys.argv[1:] if argv is None else argv,
        prog="seqserve serve",
        description="Serves the models of a repository over gRPC, until Ctrl-C or SIGTERM.",
        epilog=_EPILOG,
    )
    logs.configure(options.log_format, options.log_level)
    check_provider(options.provider)
    metrics, delivery = Metrics(), LoopDelivery()
    loader = Loader(
        provider=options.provider,
        threads=options.threads,
        limits=EngineLimits(
            workers=options.worker_count(),
            slots=options.slots,
            max_queue=options.max_queue,
            max_source_tokens_per_step=options.max_source_tokens_per_step,
        ),
        deliver=delivery,
        metrics=metrics,
    )
    repository = loader.load(options.model_repository, options.default_model)
    _run(_Server(options, repository, metrics, delivery))
    return 0


def _run(server: _Server) -> None:
    try:
        import uvloop
    except ImportError:  # not made for every platform; only a little slower without
        asyncio.run(server.serve())
    else:
        uvloop.run(server.serve())


class _Server:
    """A gRPC server over a repository, and the port that shows how it does."""

    def __init__(
        self,
        options: ServeOptions,
        repository: Repository,
        metrics: Metrics,
        delivery: LoopDelivery,
    ) -> None:
        self._options = options
        self._repository = repository
        self._metrics = metrics
        self._delivery = delivery
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._ready = False

    async def serve(self) -> None:
        """Serves until a signal, then drains."""
        loop = asyncio.get_running_loop()
        self._delivery.attach(loop)
        server, port = self._listen()
        scrape = ScrapeServer(
            self._options.metrics_host,
            self._options.metrics_port,
            self._metrics.registry,
            lambda: self._ready,
        )
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _on_signal, stop)
        for model in self._repository.models():
            model.engine.start()
        await server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        self._ready = True
        # What was made until here stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        self._announce(port, scrape.port)
        await stop.wait()
        await self._drain(server)
        scrape.close()

    def _listen(self) -> tuple[grpc.aio.Server, int]:
        options = self._options
        server = grpc.aio.server(
            interceptors=[CallInterceptor(self._metrics)],
            options=[
                ("grpc.so_reuseport", int(options.reuse_port)),
                ("grpc.max_receive_message_length", options.max_message_bytes),
                ("grpc.max_metadata_size", 16 << 10),
                # A client that pings more often than that is cut off.
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
            ],
        )
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(
            GenerationServicer(self._repository), server
        )
        model_pb2_grpc.add_ModelServiceServicer_to_server(
            ModelServicer(self._repository), server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        address = f"{options.host}:{options.port}"
        try:
            port = server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise OptionError(
                f"--port: cannot listen on {address}; is another server running there?"
                " --port 0 takes any free one"
            )
        return server, port

    async def _set_health(self, status: int) -> None:
        names = {"", *_SERVICES}
        for model in self._repository.models():
            names |= {model.manifest.name, model.manifest.label}
        for name in sorted(names):
            await self._health.set(name, status)

    def _announce(self, port: int, metrics_port: int) -> None:
        options = self._options
        models = ", ".join(
            f"{model.manifest.label} ({model.manifest.precision}, {model.provider.value},"
            f" {model.engine.slots} slots, caches {model.engine.cache_bytes / 1e6:.0f} MB)"
            for model in self._repository.models()
        )
        print(
            f"seqserve ready on {options.host}:{port},"
            f" metrics http://{options.metrics_host}:{metrics_port}/metrics, models: {models}",
            flush=True,
        )

    async def _drain(self, server: grpc.aio.Server) -> None:
        """Lets accepted calls finish, new ones go elsewhere."""
        logs.event("draining", timeout_s=self._options.drain_timeout_s)
        self._ready = False
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        engines = [model.engine for model in self._repository.models()]
        drains = (
            asyncio.to_thread(engine.drain, self._options.drain_timeout_s) for engine in engines
        )
        finished = all(await asyncio.gather(*drains))
        await server.stop(_FLUSH_S if finished else 0)
        for engine in engines:
            await asyncio.to_thread(engine.stop)
        logs.event("stopped", all_finished=finished)


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        # Told twice: somebody does not want to wait.
        os._exit(130)
    stop.set()
