"""The cost of ``seqserve load`` itself, and the rate that one of its processes can send.

The server, a separate process, does nothing: it answers every request at once with the same bytes,
over gRPC, streamed too, or over HTTP. A closed loop shows the most that both can do; an open loop,
how late the generator is at a rate.
"""

import argparse
import asyncio
import signal
import statistics
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import uvloop

from bench.drivers.server_process import Server, ServerProcess
from bench.requests import caller_of, everyday
from bench.tables import Table
from seqserve.load.answer import Caller
from seqserve.load.http_caller import HttpCaller, HttpForm
from seqserve.load.load import Load, send
from seqserve.load.result import result_of
from seqserve.v1 import generation_pb2 as pb

_MODULE = "bench.scenarios.generator"
_FORM = HttpForm(path="/v1/generate", text_field="source")


def null_server(*options: str) -> Server:
    """Returns the server that does nothing; ``--http`` speaks HTTP in place of gRPC."""
    return Server("null", _MODULE, options)


def measure(
    rounds: int, *, rate_per_s: float = 2000.0, in_flight: int = 32, seconds: float = 3.0
) -> dict[str, Any]:
    """Runs both loops against a server of each kind, by turns.

    Args:
        rate_per_s: Of the open loop; a quarter for streams, which are ten messages each.

    Returns:
        Medians of the rounds, by the way to call.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(null_server(), Path(folder) / "grpc.log") as grpc,
        ServerProcess(null_server("--http"), Path(folder) / "http.log") as http,
    ):
        callers: dict[str, Caller] = {
            "gRPC": caller_of(grpc.address),
            "gRPC, streams of 10 pieces": caller_of(grpc.address, streamed=True),
            "HTTP": HttpCaller(http.address, _FORM),
        }
        runs = [
            {
                name: _measured(
                    caller, rate_per_s / 4 if "streams" in name else rate_per_s, in_flight, seconds
                )
                for name, caller in callers.items()
            }
            for _ in range(rounds)
        ]
    return {
        "in_flight": in_flight,
        "ways": {
            name: {
                key: statistics.median(round_[name][key] for round_ in runs)
                for key in runs[0][name]
            }
            for name in callers
        },
    }


def _measured(
    caller: Caller, rate_per_s: float, in_flight: int, seconds: float
) -> dict[str, float]:
    shape = Load(sources=everyday(), seconds=seconds, in_flight=in_flight, warm_ups=100)
    closed = _sent(shape, caller)
    opened = _sent(
        Load(sources=everyday(), seconds=seconds, rate_per_s=rate_per_s, warm_ups=100), caller
    )
    return {
        "most_per_s": closed["request_throughput"],
        "cpu_us": closed["generator_cpu_us_per_request"],
        "asked_per_s": rate_per_s,
        "sent_per_s": opened["offered_throughput"],
        "open_cpu_us": opened["generator_cpu_us_per_request"],
        "late_p50_ms": opened["median_lateness_ms"],
        "late_p99_ms": opened["p99_lateness_ms"],
    }


def _sent(load: Load, caller: Caller) -> Mapping[str, Any]:
    sent = send(load, caller, 1, lambda _: None)
    return result_of(sent, {}, seconds=load.seconds, streamed=False, goodput={})


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure` returned."""
    rows = [
        [
            name,
            f"{way['most_per_s']:,.0f}",
            f"{way['cpu_us']:,.0f}",
            f"{way['sent_per_s']:,.0f} of {way['asked_per_s']:,.0f}",
            f"{way['open_cpu_us']:,.0f}",
            f"{way['late_p50_ms']:.2f}, {way['late_p99_ms']:.1f}",
        ]
        for name, way in report["ways"].items()
    ]
    head = [
        "one process of `seqserve load`, a server that does nothing",
        f"most, {report['in_flight']} in flight, 1/s",
        "CPU µs a request",
        "open loop, 1/s",
        "CPU µs a request",
        "late by, p50, p99, ms",
    ]
    return [Table(head, rows)]


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
