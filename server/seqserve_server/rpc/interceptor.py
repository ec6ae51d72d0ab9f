"""What surrounds every call: its id, its time, its line in the log, and how its errors look.

Only calls of ``seqserve.v1`` are seen here; health and reflection stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.message import Message

from seqserve_server import logs
from seqserve_server.errors import Draining, InvalidRequest, QueueFull
from seqserve_server.metrics import Metrics
from seqserve_server.rpc.record import REQUEST_ID, CallRecord, current, request_id
from seqserve_server.rpc.status import Failure, failure_of
from seqserve_server.rpc.wire import Unreadable, tolerant

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_PREFIX = "/seqserve.v1."
_REJECTIONS = {QueueFull: "queue_full", Draining: "draining", InvalidRequest: "invalid"}
_log = logging.getLogger(__name__)


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handlers of our own services."""

    def __init__(self, metrics: Metrics) -> None:
        """Takes where calls are counted."""
        self._metrics = metrics

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Finds the handler and wraps it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(_PREFIX):
            return handler
        name = method.removeprefix(_PREFIX).replace("/", ".")
        deserialize = _tolerant(method, handler)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(name, handler.unary_stream), deserialize, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(name, handler.unary_unary), deserialize, handler.response_serializer
        )

    def _unary(self, name: str, behave: Any) -> Any:
        async def handle(request: Message | Unreadable, context: Context) -> Message:
            async with _Call(self._metrics, name, context):
                if isinstance(request, Unreadable):
                    raise request.error
                response: Message = await behave(request, context)
                return response

        return handle

    def _stream(self, name: str, behave: Any) -> Any:
        async def handle(request: Message | Unreadable, context: Context) -> AsyncIterator[Message]:
            async with _Call(self._metrics, name, context):
                if isinstance(request, Unreadable):
                    raise request.error
                async for response in behave(request, context):
                    yield response

        return handle


def _tolerant(method: str, handler: Handler) -> Any:
    service, _, name = method[1:].rpartition("/")
    found = descriptor_pool.Default().FindMethodByName(f"{service}.{name}")
    assert handler.request_deserializer is not None
    return tolerant(handler.request_deserializer, found.input_type)


class _Call:
    """Keeps the record of one call, and ends the call where an error comes out of its handler."""

    def __init__(self, metrics: Metrics, name: str, context: Context) -> None:
        self._metrics = metrics
        self._context = context
        self._record = CallRecord(
            method=name,
            request_id=request_id(context.invocation_metadata()),  # type: ignore[arg-type]
        )

    async def __aenter__(self) -> None:
        current.set(self._record)
        id_ = (REQUEST_ID, self._record.request_id)
        self._context.set_trailing_metadata((id_,))

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self._note(grpc.StatusCode.OK)
        elif isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            self._note(self._why_cancelled())
        elif isinstance(error, Exception):
            failure = failure_of(error, self._record.request_id)
            self._note(failure.code, failure.details)
            self._count(error)
            if failure.code is grpc.StatusCode.INTERNAL:
                _log.error("request %s", self._record.request_id, exc_info=error)
            await self._abort(failure)

    def _why_cancelled(self) -> grpc.StatusCode:
        # gRPC cancels the handler for both; only the clock tells a deadline from a caller gone.
        remaining_s = self._context.time_remaining()
        if remaining_s is not None and remaining_s <= 0:
            return grpc.StatusCode.DEADLINE_EXCEEDED
        return grpc.StatusCode.CANCELLED

    def _count(self, error: Exception) -> None:
        reason = _REJECTIONS.get(type(error))
        if reason:
            self._metrics.rejected(self._record.model, reason)

    async def _abort(self, failure: Failure) -> None:
        id_ = (REQUEST_ID, self._record.request_id)
        await self._context.abort(failure.code, failure.details, (id_, *failure.trailers))

    def _note(self, code: grpc.StatusCode, details: str = "") -> None:
        record = self._record
        duration_s = time.monotonic() - record.began_s
        self._metrics.called(record.model, record.method, code.name, duration_s)
        fields: dict[str, Any] = {
            "id": record.request_id,
            "method": record.method,
            "code": code.name,
            "ms": duration_s * 1e3,
        }
        if record.model:
            fields["model"] = record.model
        if record.source_tokens:
            fields["source_tokens"] = record.source_tokens
            fields["generated_tokens"] = record.generated_tokens
        if details:
            fields["details"] = details
        logs.event("call", **fields)
