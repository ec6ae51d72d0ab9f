"""What surrounds every call: its id, its time, its line in the log, and how its errors look.

Of health and reflection, which are gRPC's own, only requests that cannot be read are seen here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import Message

from seqserve_server.contract import logs
from seqserve_server.contract.errors import ServiceError
from seqserve_server.front.models.active_calls import ActiveCalls
from seqserve_server.front.rpc.calls.caller import caller_of
from seqserve_server.front.rpc.calls.deadline import has_passed
from seqserve_server.front.rpc.calls.grpc_services import legible
from seqserve_server.front.rpc.calls.status import Failure, failure_of
from seqserve_server.front.rpc.calls.wire import Unreadable, tolerant_of
from seqserve_server.front.telemetry.call_record import (
    REQUEST_ID,
    CallRecord,
    current,
    request_id,
    trace_of,
)
from seqserve_server.front.telemetry.metrics import Metrics

if TYPE_CHECKING:
    # It loads what is there only with an extra.
    from seqserve_server.front.telemetry.tracing import Tracing

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Requests: TypeAlias = Message | Unreadable | AsyncIterator[Message | Unreadable]
"""What a handler is given: one request, or the stream of them."""

_PREFIXES = ("/seqserve.v1.", "/inference.")
_GRPCS = "/grpc."
_log = logging.getLogger(__name__)


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handlers of our own services."""

    def __init__(
        self, metrics: Metrics, tracing: Tracing | None = None, *, caller_metadata: str = ""
    ) -> None:
        """Takes where calls are counted.

        Args:
            metrics: Where that is.
            tracing: Where they are traced, if they are.
            caller_metadata: Key of the metadata that names the caller; empty for none.
        """
        self._metrics = metrics
        self._tracing = tracing
        self._caller_metadata = caller_metadata
        self._wrapped: dict[str, Handler] = {}
        self._calls: set[_Call] = set()
        self.active = ActiveCalls()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Finds the handler and wraps it."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is not None:
            return wrapped
        handler = await continuation(handler_call_details)
        # Names that nobody serves must not pile up here.
        if handler is None or not method.startswith((*_PREFIXES, _GRPCS)):
            return handler
        wrap = legible if method.startswith(_GRPCS) else self._wrap
        self._wrapped[method] = wrap(method, handler)
        return self._wrapped[method]

    def end_all(self, error: ServiceError) -> None:
        """Ends the calls that are under way, each with this error."""
        for call in list(self._calls):
            call.end(error)

    def refusing(self, method: str, error: ServiceError) -> Handler:
        """Makes a handler that ends a call, whatever its shape, before anything of it is read.

        Args:
            method: One that is served.
            error: How it ends.
        """

        async def handle(requests: Any, context: Context) -> None:
            async with self._call(method, context):
                raise error

        return grpc.stream_stream_rpc_method_handler(handle)

    def _wrap(self, method: str, handler: Handler) -> Handler:
        deserialize = tolerant_of(method, handler)
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._stream(method, handler.stream_stream),
                deserialize,
                handler.response_serializer,
            )
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method, handler.unary_stream), deserialize, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(method, handler.unary_unary), deserialize, handler.response_serializer
        )

    def _call(self, method: str, context: Context) -> _Call:
        metadata: Any = context.invocation_metadata()
        record = CallRecord(
            path=method,
            request_id=request_id(metadata),
            origin=caller_of(context.peer(), metadata, self._caller_metadata),
            trace=trace_of(metadata) if self._tracing else None,
            refused=self._metrics.refused,
        )
        return _Call(self._metrics, self._tracing, self.active, self._calls, record, context)

    def _unary(self, method: str, behave: Any) -> Any:
        async def handle(request: Message | Unreadable, context: Context) -> Message:
            async with self._call(method, context):
                response: Message = await behave(_readable(request), context)
                return response

        return handle

    def _stream(self, method: str, behave: Any) -> Any:
        # Not a generator: a call that ends while a slow reader is waited for would leave that to
        # the garbage collector, and its request in the engine until then.
        async def handle(request: Requests, context: Context) -> None:
            async with (
                self._call(method, context),
                aclosing(behave(_readable(request), context)) as responses,
            ):
                async for response in responses:
                    await _write(context, response)

        return handle


async def _write(context: Context, response: Message) -> None:
    """Waits until the caller has taken a message, or room for it.

    Raises:
        CancelledError: The caller has gone, or the deadline has passed, meanwhile; what gRPC calls
            an internal error is no fault of ours.
    """
    try:
        await context.write(response)
    except grpc.aio.InternalError as error:
        raise asyncio.CancelledError from error


def _readable(request: Requests) -> Message | AsyncIterator[Message | Unreadable]:
    # Of many requests each is looked at when its turn comes.
    if isinstance(request, Unreadable):
        raise request.error
    return request


class _Call:
    """Keeps the record of one call, and ends the call where an error comes out of its handler."""

    def __init__(
        self,
        metrics: Metrics,
        tracing: Tracing | None,
        active: ActiveCalls,
        calls: set[_Call],
        record: CallRecord,
        context: Context,
    ) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._active = active
        self._calls = calls
        self._context = context
        self._record = record
        self._task: asyncio.Task[Any] | None = None
        self._ended_by: ServiceError | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._calls.add(self)
        self._active.enter()
        current.set(self._record)
        id_ = (REQUEST_ID, self._record.request_id)
        self._context.set_trailing_metadata((id_,))

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._calls.discard(self)
        self._active.leave()
        self._record.release()
        if error is None:
            self._note(grpc.StatusCode.OK)
        elif self._ended_by is not None and isinstance(error, asyncio.CancelledError):
            await self._fail(self._ended_by)
        elif isinstance(error, Exception):
            await self._fail(error)
        else:
            self._note(self._why_cancelled())

    def end(self, error: ServiceError) -> None:
        """Ends the call with an error, wherever its handler is."""
        assert self._task is not None
        self._ended_by = error
        self._task.cancel()

    async def _fail(self, error: Exception) -> None:
        record = self._record
        failure = failure_of(error, record.request_id)
        self._note(failure.code, failure)
        self._metrics.refused(record.model, error)
        if failure.code is grpc.StatusCode.INTERNAL:
            _log.error("request %s", record.request_id, exc_info=error)
        id_ = (REQUEST_ID, record.request_id)
        await self._context.abort(failure.code, failure.message, (id_, *failure.trailers))

    def _why_cancelled(self) -> grpc.StatusCode:
        elapsed_s = time.monotonic() - self._record.began_s
        if has_passed(self._context.time_remaining(), elapsed_s):
            return grpc.StatusCode.DEADLINE_EXCEEDED
        return grpc.StatusCode.CANCELLED

    def _note(self, code: grpc.StatusCode, failure: Failure | None = None) -> None:
        record = self._record
        ended_s = time.monotonic()
        duration_s = ended_s - record.began_s
        trace_id = self._tracing.ended(record, code, ended_s) if self._tracing else ""
        call = {"trace_id": trace_id} if trace_id else {"request_id": record.request_id}
        method = record.method
        self._metrics.called(record.model, method, code.name, duration_s, call)
        fields: dict[str, object] = {
            "id": record.request_id,
            "method": method,
            "code": code.name,
            "ms": duration_s * 1e3,
        }
        if record.model:
            fields["model"] = record.model
        if trace_id:
            fields["trace_id"] = trace_id
        if record.caller:
            fields["caller"] = record.caller
        if failure is not None:
            # Not its message, which may hold words of the caller's.
            fields["reason"] = failure.reason
        if failure is not None and failure.field:
            fields["field"] = failure.field
        if code is grpc.StatusCode.UNAUTHENTICATED:
            fields["peer"] = self._context.peer()
        logs.event("call", fields | record.facts)
