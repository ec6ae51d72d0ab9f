"""gRPC's own services, health and reflection, as far as they are not left as they are.

Their calls are neither counted nor logged. But what they cannot read is the caller's fault, which
gRPC by itself would take for the server's.
Source: gRPC health checking protocol, https://github.com/grpc/grpc/blob/master/doc/health-checking.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2

from seqserve_server.front.rpc.calls.status import failure_of
from seqserve_server.front.rpc.calls.wire import Unreadable, tolerant_of

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class HealthServicer(health.aio.HealthServicer):  # type: ignore[misc, name-defined]
    """Says of a service or a model that is named whether it is up."""

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Tells how it is now; what was removed is not found, as what never was."""
        response: health_pb2.HealthCheckResponse = await super().Check(request, context)
        # Only Watch may say so.
        if response.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return response

    async def List(self, request: Message, context: Context) -> None:
        """Refuses, as a server may: who shows no token is not to learn which models there are."""
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "Check and Watch tell of one name; ListModels has them"
        )


def legible(method: str, handler: Handler) -> Handler:
    """Wraps a handler, so that only what can be read comes to it.

    Args:
        method: As gRPC writes it, ``/package.Service/Method``.
        handler: Of that method.
    """
    behave: Any = handler.unary_unary or handler.unary_stream or handler.stream_stream

    async def answer(request: Message | Unreadable, context: Context) -> Any:
        return await behave(await _read(request, context), context)

    async def answers(requests: AsyncIterator[Message | Unreadable], context: Context) -> Any:
        readable = (await _read(request, context) async for request in requests)
        async for response in behave(readable, context):
            yield response

    deserialize, serialize = tolerant_of(method, handler), handler.response_serializer
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(answers, deserialize, serialize)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(answer, deserialize, serialize)
    return grpc.unary_unary_rpc_method_handler(answer, deserialize, serialize)


async def _read(request: Message | Unreadable, context: Context) -> Message:
    if isinstance(request, Unreadable):
        failure = failure_of(request.error, "")
        await context.abort(failure.code, failure.message, failure.trailers)
    return request
