"""A caller over gRPC: one channel, no retries, answers at once or streamed."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Self

import grpc
import grpc.aio

from seqserve._transport.connection import Connection
from seqserve._transport.status import error_of_call
from seqserve.arguments import MAX_MESSAGE_BYTES
from seqserve.errors import Unreachable
from seqserve.load.answer import Reply, gaps_of
from seqserve.tls import TLS
from seqserve.v1 import generation_pb2, generation_pb2_grpc

_CONNECT_S = 10.0


class GrpcCaller:
    """Calls Generate, or GenerateStream; every call counts, so none is repeated."""

    def __init__(
        self,
        target: str,
        request: generation_pb2.GenerateRequest,
        *,
        streamed: bool = False,
        tls: TLS | None = None,
        token: str | None = None,
    ) -> None:
        """Takes what to call, as :class:`~seqserve.Client` describes it.

        Args:
            target: The server, or several, which get calls in turn.
            request: All but the source of each request.
            streamed: Whether to call GenerateStream.
            tls: Encryption.
            token: Of a server that requires one.
        """
        self._target, self._tls, self._token = target, tls, token
        self._request = request
        self._streamed = streamed

    async def __aenter__(self) -> Self:
        """Connects.

        Raises:
            OptionError: The target, the token or a file of TLS is wrong.
            Unreachable: There is no connection within ten seconds.
        """
        connection = Connection(self._target, MAX_MESSAGE_BYTES, self._tls, self._token)
        self._metadata = connection.metadata()
        self._channel = connection.aio_channel()
        stub: Any = generation_pb2_grpc.GenerationServiceStub(self._channel)
        self._generate, self._generate_stream = stub.Generate, stub.GenerateStream
        try:
            await asyncio.wait_for(self._channel.channel_ready(), _CONNECT_S)
        except TimeoutError:
            await self.__aexit__()
            reason = f"no connection to {self._target} within {_CONNECT_S:g} s"
            raise Unreachable("UNAVAILABLE", reason) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the channel."""
        await self._channel.close(grace=None)

    async def send(self, source: str, timeout_s: float) -> Reply:
        """Sends a text once and waits for the end of its answer, which may be an error."""
        request = generation_pb2.GenerateRequest()
        request.CopyFrom(self._request)
        request.source = source
        call: dict[str, Any] = {"metadata": self._metadata}
        if not math.isinf(timeout_s):
            call["timeout"] = timeout_s
        try:
            if self._streamed:
                return await self._stream(self._generate_stream(request, **call))
            response = await self._generate(request, **call)
        except grpc.aio.AioRpcError as failed:
            return Reply(error=failed.code().name, details=error_of_call(failed).details)
        return _reply(response, time.perf_counter())

    async def _stream(self, messages: Any) -> Reply:
        at_s: list[float] = []
        result = None
        async for message in messages:
            if message.HasField("result"):
                result = message.result
            else:
                at_s.append(time.perf_counter())
        if result is None:
            return Reply(error="INTERNAL", details="the stream ended without a result")
        gaps_s = gaps_of(at_s)
        return _reply(result, at_s[0] if at_s else time.perf_counter(), gaps_s)


def _reply(response: Any, first_at_s: float, gaps_s: tuple[float, ...] = ()) -> Reply:
    return Reply(
        first_at_s=first_at_s,
        gaps_s=gaps_s,
        tokens=response.generated_tokens,
        source_tokens=response.source_tokens,
    )
