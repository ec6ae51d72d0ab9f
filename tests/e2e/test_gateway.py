"""`seqserve gateway` in front of a real server with the shipped models."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import given
from schemathesis.specs.openapi import checks
from tests.examples import examples
from tests.support.gateway import Gateway, gateway_of
from tests.support.process import PATIENCE_S, ServerProcess, until

from seqserve import Client
from seqserve.command.main import main
from seqserve_gateway.app import FORMS
from seqserve_gateway.openapi import document_of

COFFEE = "The coffee tastes good."
KAFFEE = "Der Kaffee schmeckt gut."
ENDLESS = {"source": COFFEE, "model": "endless"}
DOCUMENT = document_of(FORMS, 300.0)
CHECKS = [
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.status_code_conformance,
]
OPERATIONS = [
    result.ok() for result in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()
]


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with gateway.client() as client:
        yield client


def test_answer_is_that_of_grpc(client: httpx.Client, translator: Client) -> None:
    options: Any = {"beam_size": 4, "num_hypotheses": 2}
    answer = client.post("/v1/generate", json={"source": COFFEE, "options": options}).json()
    result = translator.generate(COFFEE, **options)
    found = [(each["text"], each["score"]) for each in answer["hypotheses"]]
    assert found == [(each.text, pytest.approx(each.score, rel=1e-5)) for each in result.hypotheses]


def test_calls_that_are_left_or_late_free_the_slots_and_others_end_before_the_gateway_does(
    server: ServerProcess,
) -> None:
    ended = server.calls_by_code()["CANCELLED"]
    with gateway_of(server.target) as gateway, gateway.client() as client:
        with client.stream("POST", "/v1/generate:stream", json=ENDLESS) as answer:
            next(answer.iter_lines())
        until(lambda: server.calls_by_code()["CANCELLED"] == ended + 1)
        headers = {"x-request-timeout-s": "0.02", "x-request-id": "my-id"}
        late = client.post("/v1/generate", json=ENDLESS, headers=headers)
        assert (late.status_code, late.json()["request_id"]) == (504, "my-id")
        until(server.is_idle)
        body = ENDLESS | {"options": {"time_limit_ms": 1000}}
        with client.stream("POST", "/v1/generate:stream", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            gateway.terminate()
            assert any('"result"' in line for line in lines)
        assert gateway.process.wait(PATIENCE_S) == 0


def test_every_text_is_in_its_own_language(client: httpx.Client) -> None:
    texts = [COFFEE, "커피가 맛이 좋네요.", KAFFEE]
    body = {"q": texts, "source": "auto", "target": "de"}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"] == [KAFFEE] * 3
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "ko", "de"]
    answer = client.post("/v2/translate", json={"text": texts, "target_lang": "DE"}).json()
    assert [each["text"] for each in answer["translations"]] == [KAFFEE] * 3


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en")])
def test_each_direction_has_its_model(client: httpx.Client, source: str, target: str) -> None:
    texts = {"en": COFFEE, "de": KAFFEE}
    for named in (source, "auto"):
        body = {"q": f"<p>{texts[source]}</p>", "source": named, "target": target, "format": "html"}
        answer = client.post("/translate", json=body).json()
        assert answer["translatedText"] == f"<p>{texts[target]}</p>"
    answer = client.post("/v2/translate", json={"text": [texts[source]], "target_lang": target})
    [translation] = answer.json()["translations"]
    assert translation["text"] == texts[target]
    assert translation["detected_source_language"] == source.upper()
    languages = {each["code"]: each["targets"] for each in client.get("/languages").json()}
    assert target in languages[source] and "ko" in languages[source]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.label)
def test_any_request_of_the_document_gets_an_answer_of_it(operation: Any, gateway: Gateway) -> None:
    @examples(15)
    @given(operation.as_strategy())
    def check(case: Any) -> None:
        response = case.call(base_url=gateway.url, timeout=PATIENCE_S)
        case.validate_response(response, checks=CHECKS)
        # A key may be wrong, a deadline short, and a server full.
        assert response.status_code in (200, 400, 403, 404, 429, 504)

    check()


@pytest.mark.parametrize("way", ["grpc", "http", "http --stream", "libretranslate"])
def test_load_of_each_kind_is_answered(
    way: str, gateway: Gateway, shipped: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    backend, *rest = way.split()
    target = shipped.target if backend == "grpc" else gateway.url.removeprefix("http://")
    options = ["--num-prompts", "20", "--max-concurrency", "2", "--target-language", "de"]
    command = ["load", "--backend", backend, "--target", target, *options, *rest, "--json"]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["completed"], result["failed"]) == (20, 0)
    assert (result["total_output_tokens"] > 0) is (backend != "libretranslate")
    assert ("p99_itl_ms" in result) is ("--stream" in rest)
