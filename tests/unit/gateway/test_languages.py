import threading
from typing import Any

import pytest
from httpx import AsyncClient
from tests.unit.client.fake_server import PATIENCE_S
from tests.unit.gateway.translating import Translator, translating

from seqserve.language_codes import AUTO

PAIRS = ["en-de"]


@pytest.mark.parametrize(
    ("source", "target"), [("en", "de"), ("EN", "DE"), ("en-US", "de_AT"), ("eng_Latn", "deu")]
)
async def test_codes_go_to_the_server_as_they_are_and_no_model_does(
    client: AsyncClient, server: Translator, source: str, target: str
) -> None:
    for q in ("a", ["a", "b"]):
        body = {"q": q, "source": source, "target": target}
        assert (await client.post("/translate", json=body)).status_code == 200
    for request in server.requests:
        assert request.model == ""
        codes = request.options.source_language, request.options.target_language
        assert codes == (source, target)


@pytest.mark.parametrize(
    ("source", "target"), [("de", "de-AT"), ("EN-US", "en_GB"), ("zh", "zh-Hans")]
)
async def test_text_in_the_target_language_stays_whatever_the_regions_are(
    client: AsyncClient, server: Translator, source: str, target: str
) -> None:
    body = {"q": ["Möwe"], "source": source, "target": target}
    answer = await client.post("/translate", json=body)
    assert answer.json()["translatedText"] == ["Möwe"]
    assert server.requests == []


@pytest.mark.parametrize(
    ("source", "target", "field", "known"),
    [
        ("en", "xx", "target", "de, fr"),
        ("xx", "de", "source", "en, de"),
        (AUTO, "xx", "target", "de, fr"),
    ],
)
@pytest.mark.parametrize("q", ["a", ["a", "b"]])
async def test_refusal_of_the_server_names_the_field_of_the_form(
    source: str, target: str, field: str, known: str, q: str | list[str]
) -> None:
    async with translating("en-de", "de-fr") as (client, _):
        answer = await client.post("/translate", json={"q": q, "source": source, "target": target})
    assert answer.status_code == 400
    assert answer.json() == {"error": f"{field}: no model knows 'xx'; available: {known}"}


@pytest.mark.parametrize(("source", "target"), [("", "de"), ("en", "")])
async def test_no_code(client: AsyncClient, server: Translator, source: str, target: str) -> None:
    body = {"q": "a", "source": source, "target": target}
    answer = await client.post("/translate", json=body)
    assert answer.status_code == 400 and answer.json()["error"].endswith(": is empty")
    assert server.requests == []


@pytest.mark.parametrize("source", [AUTO, "en"])
@pytest.mark.parametrize("q", ["102", "", ["102", " "], "🙂"])
async def test_unknown_target_is_refused_though_nothing_is_translated(source: str, q: Any) -> None:
    async with translating("en-de") as (client, _):
        body = {"q": q, "source": source, "target": "xx"}
        refused = await client.post("/translate", json=body)
        answers = [
            await client.post("/translate", json={**body, "target": t}) for t in ("de", "en")
        ]
    expected = {"error": "target: no model writes 'xx'; the models know de, en"}
    assert (refused.status_code, refused.json()) == (400, expected)
    assert [answer.json()["translatedText"] for answer in answers] == [q, q]


async def test_every_text_of_an_array_has_its_own_language() -> None:
    async with translating("en-de", "ko-de") as (client, server):
        texts = ["a", "가 b", "c", "ö", "102"]
        body = {"q": texts, "source": AUTO, "target": "de"}
        answer = (await client.post("/translate", json=body)).json()
    assert answer["translatedText"] == ["A", "가 B", "C", "ö", "102"]
    detected = [each["language"] for each in answer["detectedLanguage"]]
    assert detected == ["en", "ko", "en", "de", "de"]
    assert [each["confidence"] for each in answer["detectedLanguage"]] == [87.5] * 4 + [0]
    sources = {request.source: request.options.source_language for request in server.requests}
    assert sources == {"a": "en", "가 b": "ko", "c": "en"}


async def test_language_is_detected_among_the_sources_and_the_target() -> None:
    async with translating("en-de", "ko-en") as (client, server):
        await client.post("/translate", data={"q": "a", "source": AUTO, "target": "de"})
    [request] = server.detections
    assert list(request.languages) == ["en", "ko", "de"]


async def test_document_has_one_language() -> None:
    page = "<p>가</p><p>b <b>c</b></p><p>d</p>"
    async with translating("en-de", "ko-de") as (client, server):
        body = {"q": page, "source": AUTO, "target": "de", "format": "html"}
        answer = (await client.post("/translate", json=body)).json()
    assert answer["detectedLanguage"]["language"] == "ko"
    assert [request.text for request in server.detections] == ["가\nb c\nd"]
    assert {request.options.source_language for request in server.requests} == {"ko"}


async def test_nothing_is_detected_where_no_model_declares_languages() -> None:
    async with translating() as (client, _):
        answer = await client.post("/translate", data={"q": "a", "source": AUTO, "target": "de"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("source: ")


async def test_languages_are_detected_at_a_time(client: AsyncClient, server: Translator) -> None:
    server.detecting = threading.Barrier(4, timeout=PATIENCE_S)
    body = {"q": ["a", "b", "c", "d"], "source": AUTO, "target": "de"}
    answer = await client.post("/translate", json=body)
    assert answer.json()["translatedText"] == ["A", "B", "C", "D"]


@pytest.mark.parametrize(
    ("callers", "listed"), [("abab", "ab"), ([*range(20), 0], [*range(20), 0])]
)
async def test_pairs_are_listed_once_for_each_of_a_few_callers(
    client: AsyncClient, server: Translator, callers: Any, listed: Any
) -> None:
    for key in callers:
        await client.get(f"/languages?api_key={key}")
    assert server.authorizations == [f"Bearer {key}" for key in listed]
