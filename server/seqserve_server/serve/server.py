"""Runs the gRPC server: registers the services, starts, publishes health and drains.

Source: gRPC health checking protocol, https://github.com/grpc/grpc/blob/master/doc/health-checking.md.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.reflection import (  # type: ignore[attr-defined]
    SERVICE_NAME,
    aio,
)

from seqserve.address import address_of
from seqserve.open_inference import open_inference_pb2, open_inference_pb2_grpc
from seqserve.v1 import generation_pb2, generation_pb2_grpc, model_pb2, model_pb2_grpc
from seqserve_server.contract.errors import Draining, StartupError
from seqserve_server.features import all_features
from seqserve_server.front.call.connections import connection_arguments
from seqserve_server.front.call.interceptor import CallInterceptor
from seqserve_server.front.call.wire import Context, aborted
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.fronts.shared_versions import Versions
from seqserve_server.front.generate.detection import LanguageDetector
from seqserve_server.front.generate.route import Directory
from seqserve_server.front.generate.service import GenerationServicer
from seqserve_server.front.overload.acceptor import AcceptingServer, new_server
from seqserve_server.front.overload.admission import Admission
from seqserve_server.front.security.protection import Certificates, Security, security_of
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.open_inference.inference import InferenceServicer
from seqserve_server.serve.model_service import ModelServicer
from seqserve_server.text.glossary_folder import GlossaryFolder

if TYPE_CHECKING:
    from seqserve_server.front.telemetry.tracing import Tracing

_SERVICES = (
    generation_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name,
    model_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
    open_inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name,
)
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

# Time for the bytes of the last responses to leave. A client that watches health uses all of it.
_FLUSH_S = 1.0


class Server:
    """All services on one port, on the models of one repository."""

    def __init__(
        self,
        options: ServeOptions,
        versions: Versions,
        metrics: Metrics,
        security: Security | None = None,
        tracing: Tracing | None = None,
        glossaries: GlossaryFolder | None = None,
    ) -> None:
        """Binds the port; calls are answered after :meth:`start`."""
        self._versions = versions
        self._repository = versions.repository
        self._tracing = tracing
        security = security or Security()
        self._usage = security.usage
        metrics.calls.register(self._usage)
        self._interceptor = interceptor = CallInterceptor(
            metrics,
            tracing,
            authorization=security.authorization,
            caller_metadata=options.caller_metadata,
            caller_share=options.caller_share,
            max_answer_bytes=options.max_answer_mb * 1_000_000,
        )
        self._admission = Admission(
            interceptor.peer_of, interceptor.refuse, options.max_message_bytes, options.slot_count()
        )
        self._draining = asyncio.Event()
        self._health = _HealthServicer()
        self._detector = LanguageDetector()
        self._glossaries = glossaries or GlossaryFolder()
        reloads = security.reloads
        metrics.show_files(lambda: reloads() | self._glossaries.reloads(), security.expiry_s)
        self._watch_interval_s = options.watch_interval_s
        self._server = new_server(self._admission, [interceptor], connection_arguments(options))
        if isinstance(self._server, AcceptingServer):
            metrics.show_calls_never_accepted(self._server.calls_never_accepted)
        self._add_services(metrics)
        self.port = bind(self._server, options.host, options.port, security.certificates)
        self._is_serving = False
        self._published: dict[str, int] = {}
        self._publishing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the engines, then answers calls."""
        await self._versions.start()
        self._watching = asyncio.create_task(self._glossaries.watch(self._watch_interval_s))
        self._usage.start()
        self._versions.on_change = self._on_change
        await self._publish_health()
        await self._server.start()
        self._is_serving = True

    @property
    def is_ready(self) -> bool:
        """Whether the server takes calls and has an engine for them."""
        return self._is_serving and self._repository.is_ready

    def _on_change(self) -> None:
        task = asyncio.create_task(self._publish_health())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish_health(self) -> None:
        # One at a time, so that the last update published is the newest.
        async with self._publishing:
            statuses = self._statuses()
            for name, status in (dict.fromkeys(self._published, _UNKNOWN) | statuses).items():
                await self._health.set(name, status)
            self._published = statuses

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new calls, finishes those that were accepted, queued ones too, and stops.

        Returns whether every call finished in time; the others end with UNAVAILABLE.
        """
        self._is_serving = False
        if self._watching is not None:
            self._watching.cancel()
        await self._health.enter_graceful_shutdown()
        # Before waiting, so that new calls are refused at once.
        self._versions.close()
        self._draining.set()
        finished = await self._interceptor.active.wait_idle(timeout_s)
        if not finished:
            error = Draining("the server shut down while the call ran; call another one")
            self._interceptor.end_all(error)
        await self._server.stop(_FLUSH_S)
        await self._usage.stop()
        await self._versions.stop()
        await self._detector.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        return finished

    def _add_services(self, metrics: Metrics) -> None:
        features = all_features(self._glossaries)
        directory = Directory(self._repository, self._detector.detect, features)
        generation = GenerationServicer(directory, self._draining)
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(generation, self._server)
        models = ModelServicer(self._versions, self._glossaries, self._usage)
        model_pb2_grpc.add_ModelServiceServicer_to_server(models, self._server)
        inference = InferenceServicer(self._versions, metrics, features, self._draining)
        open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(inference, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        add_reflection((*_SERVICES, health.SERVICE_NAME), self._server)

    def _statuses(self) -> dict[str, int]:
        status = _SERVING if self._repository.is_ready else _NOT_SERVING
        statuses = dict.fromkeys(("", *_SERVICES), status)
        for entry in self._repository.entries:
            status = _SERVING if entry.is_ready else _NOT_SERVING
            statuses[entry.label] = status
            if statuses.get(entry.name) != _SERVING:
                statuses[entry.name] = status
        return statuses


class _HealthServicer(health.aio.HealthServicer):  # type: ignore[misc, name-defined]
    """Reports whether a service or a model is up."""

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Reports the status now; NOT_FOUND for a name that was removed or never existed."""
        response: health_pb2.HealthCheckResponse = await super().Check(request, context)
        # The protocol has this status for Watch alone.
        if response.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await aborted(context, grpc.StatusCode.NOT_FOUND, "")
        return response

    async def List(self, request: Message, context: Context) -> None:
        """Refuses, as the protocol allows: a client without a token must not learn model names."""
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            "Check and Watch report one name; ModelService.ListModels lists models",
        )


def read_files(options: ServeOptions) -> tuple[Security, GlossaryFolder]:
    """Reads what the options name beside models; blocks. Raises OptionError if a file is broken."""
    security, glossaries = security_of(options), GlossaryFolder(options.glossaries)
    glossaries.open()
    return security, glossaries


def tracing_of(options: ServeOptions) -> Tracing | None:
    """Begins to trace calls, if the options say so."""
    if not options.otlp_endpoint:
        return None
    try:
        # OpenTelemetry is there only with an extra.
        from seqserve_server.front.telemetry.tracing import tracing_to
    except ModuleNotFoundError as error:
        raise StartupError(
            f"--otlp-endpoint needs {error.name!r}, which is not installed:"
            " pip install 'seqserve[tracing]'"
        ) from None
    return tracing_to(options.otlp_endpoint, options.trace_sample_ratio)


_ALL_IPV4, _ALL_IPV6 = "0.0.0.0", "::"


def bind(server: grpc.aio.Server, host: str, port: int, certificates: Certificates | None) -> int:
    """Binds a server to a port, 0 for any free one, and returns the port."""
    with ExitStack() as meanwhile:
        if host == _ALL_IPV4:
            port = port or _free_port()
            # gRPC listens at all IPv6 addresses too, unless the port is taken there.
            with suppress(OSError):
                taken = socket.create_server((_ALL_IPV6, port), family=socket.AF_INET6)
                meanwhile.enter_context(taken)
        return _bind(server, address_of(host, port), certificates)


def _bind(server: grpc.aio.Server, address: str, certificates: Certificates | None) -> int:
    try:
        if certificates is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, certificates.credentials())
    except RuntimeError:
        bound = 0
    if not bound:
        # gRPC does not say which, and checks the files more strictly than we do.
        others = ", or gRPC refuses the files of --tls-certificate" if certificates else ""
        raise StartupError(
            f"--port: cannot listen on {address}: another server does, or --host is not a local"
            f" address of this machine{others}; --port 0 takes any free port"
        )
    return bound


def _free_port() -> int:
    with socket.create_server((_ALL_IPV4, 0)) as server:
        return int(server.getsockname()[1])


V1 = SERVICE_NAME.replace("v1alpha", "v1")


def add_reflection(services: Sequence[str], server: grpc.aio.Server) -> None:
    """Adds both services to a server; they list themselves, and the services of these names."""
    _declare()
    servicer = aio.ReflectionServicer((*services, SERVICE_NAME, V1))  # type: ignore[attr-defined]
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_registered_method_handlers(V1, {"ServerReflectionInfo": handler})  # type: ignore[attr-defined]


def _declare() -> None:
    older, newer = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(older)
    text_format.Parse(text_format.MessageToString(older).replace("v1alpha", "v1"), newer)
    descriptor_pool.Default().AddSerializedFile(newer.SerializeToString())
