"""Envoy, configured as ``deploy/envoy`` has it, in front of two servers of the shipped models."""

import asyncio
import json
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from tests.support.process import MODELS, PATIENCE_S, ServerProcess, until

from seqserve import AsyncClient, Client
from seqserve.v1 import generation_pb2

from .envoy import CONFIGURATION, Envoy, binary, write_descriptor

pytestmark = pytest.mark.envoy

SOURCE = "The coffee tastes good."
TARGET = "Der Kaffee schmeckt gut."
PAGE = "http://localhost:3000"
# More than Envoy's own bound of calls at once, 1,024.
MANY = 1500
# What one refuses for its load comes back, so that counts are exact.
PATIENT = ("--max-queue", "4096", "--max-queue-s", "60", "--caller-share", "1")
TRAILERS = 0x80


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    options = ("--default-model", "en-de", *PATIENT)
    first = ServerProcess(MODELS, tmp_path_factory.mktemp("first"), *options)
    with ServerProcess(MODELS, tmp_path_factory.mktemp("second"), *options) as second, first:
        yield [first, second]


@pytest.fixture(scope="module")
def envoy(
    servers: list[ServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Envoy]:
    with Envoy([server.target for server in servers], tmp_path_factory.mktemp("envoy")) as envoy:
        yield envoy


def test_it_takes_the_configuration_as_it_is(tmp_path: Path) -> None:
    configuration = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    assert "http.pb" in str(configuration)
    write_descriptor(tmp_path / "deploy" / "envoy" / "http.pb")
    command = [str(binary()), "--mode", "validate", "--config-path", str(CONFIGURATION)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_json_is_answered_as_a_call_of_grpc_is(envoy: Envoy, servers: list[ServerProcess]) -> None:
    with Client(servers[0].target) as client:
        result = client.generate(SOURCE, return_scores=True)
    body = {"source": SOURCE, "options": {"return_scores": True}}
    answer = envoy.client.post("/v1/generate", json=body)
    assert answer.status_code == 200
    [hypothesis] = answer.json()["hypotheses"]
    assert hypothesis["text"] == result.text == TARGET
    assert hypothesis["score"] == pytest.approx(result.score)
    assert hypothesis["stop_reason"] == "STOP_REASON_EOS"


def test_the_models_are_listed(envoy: Envoy) -> None:
    names = {model["name"] for model in envoy.client.get("/v1/models").json()["models"]}
    assert "en-de" in names
    assert envoy.client.get("/v1/models/ko-en").json()["model"]["name"] == "ko-en"


def test_grpc_passes_as_it_is(envoy: Envoy) -> None:
    with Client(envoy.target) as client:
        assert client.generate(SOURCE).text == TARGET
        assert "".join(piece.text for piece in client.stream(SOURCE)) == TARGET


def test_a_stream_is_server_sent_events(envoy: Envoy) -> None:
    with envoy.client.stream("POST", "/v1/generate:stream", json={"source": SOURCE}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    *pieces, last = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert "".join(message["piece"]["text"] for message in pieces) == TARGET
    assert last["result"]["hypotheses"][0]["text"] == TARGET


def test_a_reader_who_leaves_ends_the_decoding(envoy: Envoy, servers: list[ServerProcess]) -> None:
    body = {"source": f"{SOURCE} " * 2000}
    with envoy.client.stream("POST", "/v1/generate:stream", json=body) as answer:
        next(answer.iter_lines())
    until(lambda: sum(server.calls_by_code()["CANCELLED"] for server in servers) == 1)
    until(lambda: all(server.is_idle() for server in servers))


def test_an_error_names_the_field(envoy: Envoy) -> None:
    body = {"source": SOURCE, "options": {"beam_size": -1}}
    answer = envoy.client.post("/v1/generate", json=body)
    assert answer.status_code == 400
    status = answer.json()
    assert status["code"] == 3
    [violation] = [
        violation
        for detail in status["details"]
        for violation in detail.get("field_violations", [])
    ]
    assert violation["field"] == "options.beam_size"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("generate", {"grpc-timeout": "1u"}, 504), ("translate", {}, 404)],
    ids=["a passed deadline", "an unknown path"],
)
def test_other_statuses(envoy: Envoy, path: str, headers: dict[str, str], status: int) -> None:
    answer = envoy.client.post(f"/v1/{path}", json={"source": SOURCE}, headers=headers)
    assert answer.status_code == status


def test_the_page_of_a_site_may_call(envoy: Envoy) -> None:
    asks = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,x-grpc-web",
    }
    answer = envoy.client.options("/v1/generate", headers={"origin": PAGE, **asks})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "x-grpc-web" in answer.headers["access-control-allow-headers"]
    other = envoy.client.options("/v1/generate", headers={"origin": "http://evil.example", **asks})
    assert "access-control-allow-origin" not in other.headers


def test_grpc_web_is_answered(envoy: Envoy) -> None:
    """Source: gRPC, doc/PROTOCOL-WEB.md: frames as in gRPC, the last of trailers."""
    message = generation_pb2.GenerateRequest(source=SOURCE).SerializeToString()
    answer = envoy.client.post(
        "/seqserve.v1.GenerationService/Generate",
        content=struct.pack(">BI", 0, len(message)) + message,
        headers={"content-type": "application/grpc-web+proto", "x-grpc-web": "1"},
    )
    frames = dict(frames_of(answer.content))
    response = generation_pb2.GenerateResponse.FromString(frames[0])
    assert response.hypotheses[0].text == TARGET
    assert b"grpc-status:0" in frames[TRAILERS]


def frames_of(body: bytes) -> Iterator[tuple[int, bytes]]:
    while body:
        kind, length = struct.unpack(">BI", body[:5])
        yield kind, body[5 : 5 + length]
        body = body[5 + length :]


def test_more_calls_than_its_own_bound_are_answered_by_both(envoy: Envoy) -> None:
    before = envoy.answered()
    texts = asyncio.run(answers_of_many(envoy))
    assert texts == [TARGET] * MANY
    by_server = [now - then for now, then in zip(envoy.answered(), before, strict=True)]
    assert all(count > MANY / 10 for count in by_server)


async def answers_of_many(envoy: Envoy) -> list[str]:
    async with AsyncClient(envoy.target, timeout_s=PATIENCE_S) as client:
        calls = [client.generate(SOURCE) for _ in range(MANY)]
        return [result.text for result in await asyncio.gather(*calls)]


def test_no_call_is_lost_when_a_server_is_killed(
    envoy: Envoy, servers: list[ServerProcess], tmp_path: Path
) -> None:
    port = servers[0].target.rpartition(":")[2]
    servers[0].signal_all(signal.SIGKILL)
    servers[0].kill()
    for _ in range(20):
        answer = envoy.client.post("/v1/generate", json={"source": SOURCE})
        assert answer.status_code == 200, answer.text
    until(lambda: envoy.healthy() == 1)
    with ServerProcess(MODELS, tmp_path, "--port", port):
        until(lambda: envoy.healthy() == 2)
