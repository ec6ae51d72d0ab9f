"""Surrounds every call: gives it an id, counts and logs it, writes its errors.

Calls of gRPC's own services, health and reflection, are only checked for malformed requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from seqserve.metadata import REQUEST_ID, request_id
from seqserve_server.contract.errors import DeadlinePassed, ServiceError, Unreadable
from seqserve_server.front.call import wire
from seqserve_server.front.call.connections import peer_name
from seqserve_server.front.call.server_call import ServerCall, ServerResources
from seqserve_server.front.models.loaded_model import ActiveCalls
from seqserve_server.front.overload.memory import PEER, FairMemory, held, held_bytes, release_all
from seqserve_server.front.security.tokens import CALLER, Authorization
from seqserve_server.front.telemetry.call_record import (
    CANCELLED,
    NUMBERS_DIFFER,
    OK,
    OUTCOMES,
    Failure,
    Outcome,
    failure_of,
    has_passed,
    method_name,
    trace_of,
)
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import logs

if TYPE_CHECKING:
    # OpenTelemetry is there only with an extra.
    from seqserve_server.front.telemetry.tracing import Tracing

_OWN_SERVICES = ("/seqserve.v1.", "/inference.")
_BUILTIN_SERVICES = "/grpc."
_log = logging.getLogger(__name__)

# A request from which on reading takes more than some tenths of a millisecond.
_LARGE_BYTES = 64 << 10


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handlers of all services."""

    def __init__(
        self,
        metrics: Metrics,
        tracing: Tracing | None = None,
        *,
        caller_metadata: str = "",
        caller_share: float = 0.5,
        max_answer_bytes: int = 256_000_000,
        authorization: Authorization | None = None,
    ) -> None:
        """Starts without calls; the metadata key ``caller_metadata`` names clients."""
        self.metrics, self.tracing, self._authorization = metrics, tracing, authorization
        self._caller_metadata = caller_metadata
        answers = FairMemory(max_answer_bytes, caller_share)
        self._resources = ServerResources(answers=answers)
        metrics.show_answers(lambda: answers.reserved_bytes, lambda: answers.num_waiting)
        self._reading = asyncio.Lock()
        self._wrapped: dict[str, wire.Handler] = {}
        self.running: set[_RunningCall] = set()
        self.active = ActiveCalls()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[wire.Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> wire.Handler:
        """Finds the handler of a call and wraps it, or one that refuses the call."""
        method = handler_call_details.method
        handler = self._wrapped.get(method)
        if handler is None:
            handler = await continuation(handler_call_details)
            # A method that does not exist needs no protection, and its name must not pile up here.
            if handler is None:
                return handler
            if method.startswith(_BUILTIN_SERVICES):
                handler = self._wrapped[method] = _refusing_malformed(handler)
            elif method.startswith(_OWN_SERVICES):
                handler = self._wrapped[method] = self._wrap(method, handler)
        # Not when the handler returns: gRPC then holds the answer until the client has taken it.
        wire.at_end(partial(release_all, held()))
        # Before the request is read.
        refusal = self._authorization and self._authorization.refusal(handler_call_details)
        return self._refusing(method, refusal) if refusal else handler

    def end_all(self, error: ServiceError) -> None:
        """Ends every running call with this error."""
        for call in list(self.running):
            call.end(error)

    def _refusing(self, method: str, error: ServiceError) -> wire.Handler:
        """Makes a handler of any shape that ends a call with an error and reads no request."""

        async def handle(requests: Any, context: wire.Context) -> None:
            async with self._call(method, context):
                raise error

        return grpc.stream_stream_rpc_method_handler(handle)

    async def refuse(self, method: str, context: wire.Context, error: ServiceError) -> None:
        """Ends a call before it has a handler; it is counted, but has no line in the log."""
        metadata: Any = context.invocation_metadata()
        id_ = request_id(metadata)
        failure = failure_of(error, id_)
        name, code = method_name(method), failure.outcome.code.name
        self.metrics.called("", 0, name, code, 0.0, {"request_id": id_})
        self.metrics.refused("", error)
        trailers: Any = ((REQUEST_ID, id_), *failure.trailers)
        try:
            await context.abort(failure.outcome.code, failure.message, trailers)
        except grpc.aio.BaseError as ended:  # as it should be, or the client is gone
            wire.forget_origin(ended)

    def peer_of(self, context: wire.Context) -> str:
        """Names the peer of a call."""
        metadata: Any = context.invocation_metadata() if self._caller_metadata else ()
        return peer_name(context.peer(), metadata, self._caller_metadata)

    def _call(self, method: str, context: wire.Context) -> _RunningCall:
        metadata: Any = context.invocation_metadata()
        named: dict[str, Any] = {}
        if self._authorization and (token := CALLER.get()):
            usage = self._authorization.usage
            named = {
                "auth_name": token.name,
                "count_use": partial(usage.add, token.name),
                "quota_error": partial(usage.refusal, token),
            }
        call = ServerCall(
            path=method,
            request_id=request_id(metadata),
            peer=PEER.get() or self.peer_of(context),
            connection=context.peer(),
            trace=trace_of(metadata) if self.tracing else None,
            remaining_s=context.time_remaining,
            count_refusal=self.metrics.refused,
            resources=self._resources,
            reservations=held(),
            **named,
        )
        return _RunningCall(self, call, context)

    def _wrap(self, method: str, handler: wire.Handler) -> wire.Handler:
        behaviour = wire.behaviour_of(handler)

        async def unary(request: Message | Unreadable, context: wire.Context) -> bytes:
            async with self._call(method, context) as call:
                if any(each.size > _LARGE_BYTES for each in call.reservations):
                    # Those that have come together are read in different turns of the event loop.
                    async with self._reading:
                        await asyncio.sleep(0)
                # gRPC would keep the message too until the client has taken the bytes.
                data = wire.encoded(await behaviour(wire.readable(request), call))
                if call.held is not None:
                    call.held.shrink(held_bytes(len(data)))
                return data

        # Not a generator: if a call ended while its reader is slow, the garbage collector would
        # close the generator, and the engine's request would run until then.
        async def stream(request: wire.Requests, context: wire.Context) -> None:
            async with (
                self._call(method, context) as call,
                aclosing(behaviour(wire.readable(request), call)) as responses,
            ):
                async for response in responses:
                    await wire.write(context, response)

        return wire.rewrapped(handler, stream if handler.response_streaming else unary)


def _refusing_malformed(handler: wire.Handler) -> wire.Handler:
    # Malformed requests end the call with INVALID_ARGUMENT.
    behaviour = wire.behaviour_of(handler)

    async def answer(request: Message | Unreadable, context: wire.Context) -> Any:
        return await behaviour(await _read(request, context), context)

    async def answers(requests: AsyncIterator[Message | Unreadable], context: wire.Context) -> Any:
        readable = (await _read(request, context) async for request in requests)
        async for response in behaviour(readable, context):
            yield response

    return wire.rewrapped(handler, answers if handler.request_streaming else answer)


async def _read(request: Message | Unreadable, context: wire.Context) -> Message:
    if isinstance(request, Unreadable):
        failure = failure_of(request, "")
        await wire.aborted(context, failure.outcome.code, failure.message, failure.trailers)
    return request


@dataclass(slots=True, eq=False)
class _RunningCall:
    _interceptor: CallInterceptor
    _call: ServerCall
    _context: wire.Context
    _task: asyncio.Task[Any] | None = None
    _ended_by: ServiceError | None = None

    async def __aenter__(self) -> ServerCall:
        self._task = asyncio.current_task()
        self._interceptor.running.add(self)
        self._interceptor.active.enter()
        self._context.set_trailing_metadata(((REQUEST_ID, self._call.request_id),))
        return self._call

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._interceptor.running.discard(self)
        self._interceptor.active.leave()
        self._call.release_models()
        if error is None:
            self._report(OK)
        elif self._ended_by is not None and isinstance(error, asyncio.CancelledError):
            await self._fail(self._ended_by)
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            elapsed_s = time.monotonic() - self._call.began_s
            is_late = has_passed(self._context.time_remaining(), elapsed_s)
            self._report(OUTCOMES[DeadlinePassed] if is_late else CANCELLED)
        else:
            # A panic of the tokenizer's library is not a subclass of Exception.
            await self._fail(error)

    def end(self, error: ServiceError) -> None:
        assert self._task is not None
        self._ended_by = error
        self._task.cancel()

    async def _fail(self, error: BaseException) -> None:
        call = self._call
        failure = failure_of(error, call.request_id)
        code = failure.outcome.code
        self._report(failure.outcome, failure)
        self._interceptor.metrics.refused(call.model, error)
        if code is grpc.StatusCode.INTERNAL:
            _log.error("request %s", call.request_id, exc_info=error)
        id_ = (REQUEST_ID, call.request_id)
        await wire.aborted(self._context, code, failure.message, (id_, *failure.trailers))

    def _report(self, outcome: Outcome, failure: Failure | None = None) -> None:
        call = self._call
        ended_s = time.monotonic()
        duration_s = ended_s - call.began_s
        metrics, tracing = self._interceptor.metrics, self._interceptor.tracing
        trace_id = tracing.ended(call, outcome, ended_s) if tracing else ""
        exemplar = {"trace_id": trace_id} if trace_id else {"request_id": call.request_id}
        code, method = outcome.code, call.method
        metrics.called(call.model, call.version, method, code.name, duration_s, exemplar)
        if count := call.facts.get(NUMBERS_DIFFER):
            metrics.numbers_differ(call.model, count)
        fields: dict[str, object] = {
            "id": call.request_id,
            "method": method,
            "code": code.name,
            "ms": duration_s * 1e3,
        }
        # Never the message of a failure, which may repeat text of the request.
        named = {
            "model": call.model,
            "version": call.version,
            "trace_id": trace_id,
            "caller": call.auth_name,
            "reason": failure.outcome.reason if failure else "",
            "field": failure.field if failure else "",
            "peer": self._context.peer() if code is grpc.StatusCode.UNAUTHENTICATED else "",
        }
        fields |= {name: value for name, value in named.items() if value}
        logs.event("call", fields | call.facts)
