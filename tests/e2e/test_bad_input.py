"""Malformed requests: the error names the field, and the server continues."""

import struct
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.endless_model import NAME
from tests.support.frames import HELLO, Kind, conversed, frame
from tests.support.process import PATIENCE_S, ServerProcess, until
from tests.support.unread import unread

from seqserve import Client
from seqserve._transport.status import METADATA_KEY, read_details
from seqserve.v1 import generation_pb2

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
LONGEST, SHORTEST = "options.max_decoding_length", "options.min_decoding_length"
METHODS = ("Generate", "GenerateStream")


def request(source: str = "Nobody", options: dict[str, int] | None = None, **fields: Any) -> bytes:
    message = generation_pb2.GenerateRequest(source=source, **fields)
    if options is not None:
        message.options.CopyFrom(generation_pb2.GenerationOptions(**options))
    return message.SerializeToString()


NOT_UTF8 = bytes([3 << 3 | 2, 2, 0xC3, 0x28])
UNKNOWN_OPTION = bytes([4 << 3 | 2, 3, 0xB8, 0x3E, 1])

BAD = {
    "white": (request(" \t\n\u3000"), INVALID, "source"),
    "100,000 characters": (request("a" * 100_000), INVALID, "source"),
    "not UTF-8": (NOT_UTF8, INVALID, "request"),
    "garbage": (b"\xff" * 40, INVALID, "request"),
    "longest 0": (request(options={"max_decoding_length": 0}), INVALID, LONGEST),
    "shortest over longest": (
        request(options={"min_decoding_length": 6, "max_decoding_length": 5}),
        INVALID,
        SHORTEST,
    ),
    "option of another server": (request() + UNKNOWN_OPTION, INVALID, "options"),
    "no such model": (request(model="en-fr"), NOT_FOUND, ""),
    "model of a long name": (request(model="é" * 50_000), NOT_FOUND, ""),
}


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[Any]:
    with grpc.insecure_channel(server.target) as channel:
        yield channel


def send(channel: Any, path: str, data: bytes, **given: Any) -> Any:
    call = channel.unary_stream(f"/seqserve.v1.GenerationService/{path}")
    with pytest.raises(grpc.RpcError) as failure:
        list(call(data, timeout=PATIENCE_S, **given))
    return failure.value


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("data", "code", "field"), BAD.values(), ids=BAD)
def test_bad_request(
    channel: Any, method: str, data: bytes, code: grpc.StatusCode, field: str
) -> None:
    error = send(channel, method, data)
    assert error.code() is code, error.details()
    assert len(error.details()) <= 1000
    trailers = dict(error.trailing_metadata())
    assert read_details(trailers[METADATA_KEY]).get("field", "") == field
    assert trailers["x-request-id"]
    if code is NOT_FOUND:
        assert f"{NAME}/1" in error.details()


def test_message_over_the_limit(channel: Any) -> None:
    error = send(channel, "Generate", request("a" * (1 << 20)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = send(channel, "Generate", request(), metadata=[("x-large", "a" * 100_000)])
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(("method", "code"), [("Generate", "OK"), ("GenerateStream", "CANCELLED")])
def test_client_that_reads_nothing_leaves(server: ServerProcess, method: str, code: str) -> None:
    labels = {"method": f"GenerationService.{method}", "code": code, "model": NAME}
    before, tokens = server.value("requests_total", **labels), tokens_of(server)
    sent = generation_pb2.GenerateRequest(source="Nobody")
    sent.options.max_decoding_length = 3
    with unread(server.target, "unread") as caller:
        caller.call(method, sent)
        # It leaves when its answer waits to be read. A stream has not ended then.
        until(lambda: tokens_of(server) > tokens)
        if code == "OK":
            until(lambda: server.value("requests_total", **labels) == before + 1)
    # A client that is gone is no error of the server.
    until(lambda: server.value("requests_total", **labels) == before + 1)


def tokens_of(server: ServerProcess) -> float:
    return server.value("generated_tokens_total")


def test_goaway_text_of_a_client_is_not_logged(server: ServerProcess) -> None:
    last_words = frame(Kind.GOAWAY, struct.pack("!II", 0, 2) + b"\nerror forged\n")
    ping, answer = (frame(Kind.PING, b"are read", flags=is_answer) for is_answer in (0, 1))
    # The answer to the ping shows that the frames were read.
    assert answer in conversed(server.target, [HELLO, last_words, ping], last=answer)
    assert "forged" not in server.stderr


def test_server_is_idle_and_has_logged_no_text(
    server: ServerProcess, channel: Any, client: Client
) -> None:
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    secret = "Xanthippe paints"
    assert client.generate(secret, max_decoding_length=4).generated_tokens <= 4
    until(server.is_idle)
    assert "Generate" in server.stderr
    assert "Xanthippe" not in server.stderr
    assert "Traceback" not in server.stderr
