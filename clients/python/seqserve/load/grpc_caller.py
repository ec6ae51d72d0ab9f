"""A caller of ``seqserve.v1`` over gRPC: answers at once or streamed."""

from __future__ import annotations

import time
from typing import Any

from seqserve.load.answer import Reply, gaps_of
from seqserve.load.channel_caller import ChannelCaller
from seqserve.tls import TLS
from seqserve.v1 import generation_pb2, generation_pb2_grpc


class GrpcCaller(ChannelCaller):
    """Calls Generate, or GenerateStream."""

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
        super().__init__(target, tls, token)
        self._request = request
        self._streamed = streamed

    async def _begin(self, channel: Any) -> None:
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        self._generate, self._generate_stream = stub.Generate, stub.GenerateStream

    async def _answered(self, source: str, call: dict[str, Any]) -> Reply:
        request = generation_pb2.GenerateRequest()
        request.CopyFrom(self._request)
        request.source = source
        if self._streamed:
            return await self._stream(self._generate_stream(request, **call))
        response = await self._generate(request, **call)
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
