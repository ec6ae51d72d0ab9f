import asyncio
import gzip
import json
from typing import Any

import pytest
from google.protobuf import json_format
from httpx import AsyncClient
from tests.unit.client.answers import answer, scored, stream_of, tokenized
from tests.unit.client.fake_server import MODELS, PATIENCE_S, FakeServer
from tests.unit.gateway.without_socket import Reader, gateway_of

from seqserve.v1 import generation_pb2
from seqserve_gateway.app import app_of
from seqserve_gateway.v1 import FORM

BODY, URL_ENCODED = b'{"source": "a"}', "application/x-www-form-urlencoded"


def facts_of(message: Any) -> Any:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def events_of(text: str) -> list[tuple[str, Any]]:
    """Reads server-sent events: name and JSON."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields.get("event", "message"), json.loads(fields["data"])))
    return found


async def test_generate_gives_the_servers_message(client: AsyncClient, server: FakeServer) -> None:
    body = {"source": "a b", "options": {"num_hypotheses": 2, "beam_size": 2}}
    got = await client.post("/v1/generate", json=body)
    (request,) = server.requests
    assert facts_of(request) == body
    assert got.json() == facts_of(answer("a b", options=request.options))
    assert got.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "request_", "response"),
    [
        ("score", generation_pb2.ScoreRequest(source="a b", target="A B"), scored),
        ("tokenize", generation_pb2.TokenizeRequest(text="a b"), tokenized),
        (
            "detokenize",
            generation_pb2.DetokenizeRequest(token_ids=[1, 2]),
            lambda _: generation_pb2.DetokenizeResponse(model="capitals", version=2, text="w1 w2"),
        ),
    ],
)
async def test_other_calls_give_the_messages_of_the_server(
    client: AsyncClient, path: str, request_: Any, response: Any
) -> None:
    got = await client.post(f"/v1/{path}", json=facts_of(request_))
    assert got.json() == facts_of(response(request_))


async def test_source_of_a_batch_fails_by_itself(client: AsyncClient) -> None:
    body = {"sources": ["a", "fail NOT_FOUND", "b"]}
    outcomes = (await client.post("/v1/generate:batch", json=body)).json()["outcomes"]
    assert [next(iter(outcome)) for outcome in outcomes] == ["response", "failure", "response"]
    assert outcomes[2]["response"]["hypotheses"][0]["text"] == "B"


async def test_stream_is_an_event_for_each_message(client: AsyncClient) -> None:
    got = await client.post("/v1/generate:stream", json={"source": "a b"})
    assert got.headers["content-type"].startswith("text/event-stream")
    expected = [facts_of(each) for each in stream_of("a b")]
    assert events_of(got.text) == [("message", facts) for facts in expected]
    # One that fails at once is an error and no stream.
    got = await client.post("/v1/generate:stream", json={"source": "fail NOT_FOUND"})
    assert (got.status_code, got.json()["code"]) == (404, "NOT_FOUND")


async def test_stream_that_fails_later_ends_with_an_event(client: AsyncClient) -> None:
    headers = {"x-request-timeout-s": "0.3", "x-request-id": "i-1"}
    got = await client.post("/v1/generate:stream", json={"source": "hang on"}, headers=headers)
    *pieces, (name, facts) = events_of(got.text)
    metrics = (await client.get("/metrics")).text
    assert 'code="DEADLINE_EXCEEDED",form="v1",path="/v1/generate:stream"' in metrics
    assert got.status_code == 200
    assert {kind for kind, _ in pieces} == {"message"}
    assert (name, facts["code"], facts["request_id"]) == ("error", "DEADLINE_EXCEEDED", "i-1")


async def test_reader_of_a_stream_that_leaves_cancels_it(server: FakeServer) -> None:
    gateway = gateway_of(server)
    app = app_of(gateway, [FORM])
    reader = Reader("/v1/generate:stream", {"source": "hang on"}, leaves_at=b'"piece"')
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(reader.visit(app), PATIENCE_S)
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)
    assert b'"result"' not in reader.sent
    assert gateway.admission.in_progress == 0


async def test_models_are_those_of_the_server_in_openais_form_too(client: AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    one = (await client.get("/v1/models/capitals?version=2")).json()
    described = {"id": "capitals", "object": "model", "created": 0, "owned_by": "seqserve"}
    models = [facts_of(model) for model in MODELS]
    # Only models that are ready can be asked for.
    assert listed == {"models": models, "object": "list", "data": [described]}
    assert one == {"model": facts_of(MODELS[0]), **described}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        *(("version", value, "0 to 4294967295") for value in ("two", "-1", "4294967296", "²")),
        ("version", "9" * 5000, "0 to 4294967295"),
        ("versions", "2", "unknown parameter"),
    ],
)
async def test_wrong_parameter(client: AsyncClient, name: str, value: str, reason: str) -> None:
    got = await client.get("/v1/models/capitals", params={name: value})
    assert (got.status_code, got.json()["field"]) == (400, name)
    assert reason in got.json()["detail"]


async def test_unknown_model_is_not_found(client: AsyncClient) -> None:
    got = await client.get("/v1/models/latin")
    assert got.status_code == 404
    assert "capitals" in got.json()["detail"]


@pytest.mark.parametrize(
    ("type_", "encoding", "field"),
    [
        *((type_, "", "content-type") for type_ in ("text/plain", URL_ENCODED, "")),
        ("application/json", "gzip", "content-encoding"),
    ],
)
async def test_only_json(client: AsyncClient, type_: str, encoding: str, field: str) -> None:
    headers = {"content-type": type_, "content-encoding": encoding}
    content = gzip.compress(BODY) if encoding else BODY
    got = await client.post("/v1/generate", content=content, headers=headers)
    assert (got.status_code, got.json()["field"]) == (415, field)
    headers = {"content-type": "application/json; charset=utf-8", "content-encoding": "identity"}
    assert (await client.post("/v1/generate", content=BODY, headers=headers)).status_code == 200
