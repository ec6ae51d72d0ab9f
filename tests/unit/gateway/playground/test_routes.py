"""The application of the playground, in front of a fake server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from starlette.testclient import TestClient
from tests.unit.client.fake_server import PATIENCE_S, FakeServer

from seqserve.retry import RetryPolicy
from seqserve_gateway.admission import Admission
from seqserve_gateway.playground.routes import MAX_BYTES, PAGE, gateway_of, page_of
from seqserve_gateway.upstream import UpstreamSettings

JSON = {"content-type": "application/json"}


def settings_of(server: FakeServer) -> UpstreamSettings:
    return UpstreamSettings(target=server.target, retry=RetryPolicy(max_attempts=1))


class Unattended(FakeServer):
    """Its model has no scorer, so it refuses calls for attention."""

    def GenerateStream(self, request: Any, context: Any) -> Iterator[Any]:
        if request.options.return_attention:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "capitals/2 has no scorer.onnx")
        yield from super().GenerateStream(request, context)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.stop()


@pytest.fixture
def page(server: FakeServer) -> Iterator[TestClient]:
    with TestClient(
        page_of(gateway_of(settings_of(server))), base_url="http://localhost:8080"
    ) as page:
        yield page


def lines_of(page: TestClient, source: str, **options: Any) -> list[dict[str, Any]]:
    answer = page.post("/api/generate", json={"source": source, "options": options})
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.text.splitlines()]


def test_page_may_load_nothing_of_others(page: TestClient) -> None:
    answer = page.get("/")
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[:2] == ["default-src 'none'", "script-src 'self'"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers


def test_page_has_no_script_style_or_markup_that_its_policy_forbids() -> None:
    texts = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir()}
    page = texts.pop("index.html")
    assert page.count("<script") == page.count(
        '<script type="module" src="/page/main.js"></script>'
    )
    assert "style=" not in page and "<style" not in page
    for name in (name for name in texts if name.endswith(".js")):
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert forbidden not in texts[name], name


def test_every_file_of_the_page_is_served(page: TestClient) -> None:
    types = {
        ".html": "text/html",
        ".js": "text/javascript",
        ".css": "text/css",
        ".svg": "image/svg",
    }
    for file in PAGE.iterdir():
        answer = page.get(f"/page/{file.name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(types[file.suffix])


def test_models_are_those_of_the_server(page: TestClient, server: FakeServer) -> None:
    answer = page.get("/api/models").json()
    assert answer["target"] == server.target
    states = {(model["name"], model["version"]): model["state"] for model in answer["models"]}
    assert states == {("capitals", 2): "ready", ("broken", 1): "failed"}


def test_answer_is_a_call_to_copy_pieces_and_a_result(page: TestClient) -> None:
    call, *pieces, result = lines_of(page, "a b", beam_size=2, num_hypotheses=2)
    assert set(call["call"]) == {"python", "grpcurl"}
    assert "".join(piece["piece"] for piece in pieces) == "A B"
    hypotheses = result["result"]["hypotheses"]
    assert [each["text"] for each in hypotheses] == ["A B", "A B!"]
    assert hypotheses[0]["attention"][1] == [0.0, 1.0, 0.0]
    assert result["result"]["source_pieces"] == ["a", "b", "</s>"]


def test_options_reach_the_server(page: TestClient, server: FakeServer) -> None:
    options = {"terms": {"film": "Film"}, "target_prefix_tokens": ["▁Der"], "version": 2}
    lines_of(page, "a", model="capitals", **options)
    request = server.requests[-1]
    assert (request.model, request.version) == ("capitals", 2)
    assert request.options.target_prefix_tokens == ["▁Der"]
    assert request.options.terms[0].target == "Film"
    assert request.options.return_attention


def test_failure_has_its_reason_and_advice(page: TestClient) -> None:
    error = lines_of(page, "fail UNAUTHENTICATED x")[-1]["error"]
    assert error["code"] == "UNAUTHENTICATED"
    assert "--token-file" in error["advice"]


def test_model_without_scorer_answers_without_attention() -> None:
    server = Unattended()
    try:
        with TestClient(
            page_of(gateway_of(settings_of(server))), base_url="http://localhost"
        ) as page:
            result = lines_of(page, "a b")[-1]["result"]
    finally:
        server.stop()
    assert result["hypotheses"][0]["text"] == "A B"
    assert result["hypotheses"][0]["attention"] == []


def test_stopped_server_is_told_and_a_new_one_found(page: TestClient, server: FakeServer) -> None:
    assert page.get("/api/models").status_code == 200
    server.stop()
    answer = page.get("/api/models")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "UNAVAILABLE")
    error = lines_of(page, "a")[-1]["error"]
    assert "seqserve serve" in error["advice"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (b'{"source": "a"}', {"content-type": "text/plain"}, 415, "application/json"),
        (b" " * (MAX_BYTES + 1), JSON, 413, "longer"),
        (b'{"source": ', JSON, 400, "not JSON"),
        (b"[" * 100_000, JSON, 400, "not JSON"),
        (b"[1]", JSON, 400, "an object"),
        (b'{"source": 1}', JSON, 400, "source"),
        (b'{"source": "a", "options": []}', JSON, 400, "options"),
        (b'{"source": "a", "options": {"beams": 2}}', JSON, 400, "no option 'beams'"),
        (b'{"source": "a", "target": "b"}', JSON, 400, "source and options"),
    ],
)
def test_malformed_question_is_refused(
    page: TestClient,
    server: FakeServer,
    body: bytes,
    headers: dict[str, str],
    status: int,
    reason: str,
) -> None:
    answer = page.post("/api/generate", content=body, headers=headers)
    assert answer.status_code == status
    assert reason in answer.json()["error"]["details"]
    assert server.requests == []


def test_value_that_fits_no_field_is_refused_by_its_name(page: TestClient) -> None:
    (line,) = lines_of(page, "a", beam_size="many")
    assert line["error"]["field"] == "beam_size"


def test_more_than_the_rate_is_refused(server: FakeServer) -> None:
    app = page_of(gateway_of(settings_of(server), Admission(burst=1, clock=lambda: 0.0)))
    with TestClient(app, base_url="http://127.0.0.1") as page:
        assert [page.get("/api/models").status_code for _ in range(2)] == [200, 429]


async def test_reader_that_leaves_cancels_the_call(server: FakeServer) -> None:
    admission = Admission()
    app = page_of(gateway_of(settings_of(server), admission))
    body = json.dumps({"source": "hang on"}).encode()
    gone = asyncio.Event()
    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        nonlocal body
        if body is not None:
            message, body = {"type": "http.request", "body": body, "more_body": False}, None
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message.get("body", b""))
        if b'"piece"' in sent[-1]:
            gone.set()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/generate",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app(scope, receive, send), PATIENCE_S)
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)
        assert admission.under_way == 0
    assert b'"result"' not in b"".join(sent)
