"""A server that answers at once and does nothing: what is left is the cost of a caller.

Answers are the same bytes to every request, over gRPC, streamed too, or over HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from seqserve.v1 import generation_pb2 as pb

_TOKENS = 10
_ANSWER = pb.GenerateResponse(
    model="null",
    version=1,
    hypotheses=[pb.Hypothesis(text="Nothing at all.")],
    source_tokens=_TOKENS,
    generated_tokens=_TOKENS,
)
_BYTES = _ANSWER.SerializeToString()
_PIECES = [
    pb.GenerateStreamResponse(piece=pb.Piece(text="at all ")).SerializeToString()
    for _ in range(_TOKENS)
]
_LAST = pb.GenerateStreamResponse(result=_ANSWER).SerializeToString()
_JSON = b'{"generated_tokens": 10, "translatedText": "Nothing at all."}'
_HTTP = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(_JSON), _JSON)


async def _generate(request: bytes, context: Any) -> bytes:
    return _BYTES


async def _generate_stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
    for piece in _PIECES:
        yield piece
    yield _LAST


class _Http(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        # A request of a caller that waits for each answer comes in one piece.
        self._transport.write(_HTTP)


async def _serve_grpc() -> str:
    server = grpc.aio.server()
    handlers = {
        "Generate": grpc.unary_unary_rpc_method_handler(_generate),
        "GenerateStream": grpc.unary_stream_rpc_method_handler(_generate_stream),
    }
    service = pb.DESCRIPTOR.services_by_name["GenerationService"].full_name
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _RUNNING.append(server)
    return f"127.0.0.1:{port}"


async def _serve_http() -> str:
    server = await asyncio.get_running_loop().create_server(_Http, "127.0.0.1", 0)
    _RUNNING.append(server)
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


_RUNNING: list[Any] = []
"""Lives as long as the process."""


async def _main(over_http: bool) -> None:
    address = await (_serve_http() if over_http else _serve_grpc())
    print(f"ready on {address}", flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true", help="speak HTTP, not gRPC")
    uvloop.run(_main(parser.parse_args().http))
