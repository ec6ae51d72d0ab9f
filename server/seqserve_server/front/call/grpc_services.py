"""Adapts gRPC's own services, health and reflection, whose calls are neither counted nor logged.

Source: gRPC health checking protocol,
https://github.com/grpc/grpc/blob/master/doc/health-checking.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2

from seqserve_server.front.call import wire
from seqserve_server.front.call.status import failure_of


class HealthServicer(health.aio.HealthServicer):  # type: ignore[misc, name-defined]
    """Reports whether a service or a model is up."""

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: wire.Context
    ) -> health_pb2.HealthCheckResponse:
        """Reports the status now; NOT_FOUND for a name that was removed or never existed."""
        response: health_pb2.HealthCheckResponse = await super().Check(request, context)
        # The protocol has this status for Watch alone.
        if response.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await wire.aborted(context, grpc.StatusCode.NOT_FOUND, "")
        return response

    async def List(self, request: Message, context: wire.Context) -> None:
        """Refuses, as the protocol allows: a client without a token must not learn model names."""
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            "Check and Watch report one name; ModelService.ListModels lists models",
        )


def refusing_malformed(handler: wire.Handler) -> wire.Handler:
    """Wraps a handler so that malformed requests end the call with INVALID_ARGUMENT."""
    behaviour = wire.behaviour_of(handler)

    async def answer(request: Message | wire.Unreadable, context: wire.Context) -> Any:
        return await behaviour(await _read(request, context), context)

    async def answers(
        requests: AsyncIterator[Message | wire.Unreadable], context: wire.Context
    ) -> Any:
        readable = (await _read(request, context) async for request in requests)
        async for response in behaviour(readable, context):
            yield response

    return wire.rewrapped(handler, answers if handler.request_streaming else answer)


async def _read(request: Message | wire.Unreadable, context: wire.Context) -> Message:
    if isinstance(request, wire.Unreadable):
        failure = failure_of(request, "")
        await wire.aborted(context, failure.outcome.code, failure.message, failure.trailers)
    return request
