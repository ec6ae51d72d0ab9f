"""An OpenTelemetry collector that receives spans by OTLP over gRPC and stores them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from tests.support.process import PATIENCE_S


class Collector(TraceServiceServicer):
    """A context manager that listens until it is closed."""

    def __init__(self, port: int = 0) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self._server = grpc.server(ThreadPoolExecutor(1))
        add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> Any:
        for group in request.resource_spans:
            attributes = {each.key: each.value.string_value for each in group.resource.attributes}
            self.services.add(attributes["service.name"])
            for scope in group.scope_spans:
                self.spans += scope.spans
        return ExportTraceServiceResponse()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        # Of an export that is not answered the spans would come again.
        self._server.stop(PATIENCE_S).wait()
