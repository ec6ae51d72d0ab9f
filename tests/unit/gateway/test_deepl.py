"""DeepL's routes, as its documentation and its clients use them."""

from __future__ import annotations

import pytest
from tests.unit.gateway.translating import translating

TEXTS = {"text": ["a", "b"], "target_lang": "DE"}


async def test_several_texts_are_answered_in_order() -> None:
    async with translating("en-de") as (client, _):
        sent = await client.post("/v2/translate", json=TEXTS)
        form = await client.post("/v2/translate", data=TEXTS)
        asked = await client.get("/v2/translate", params=TEXTS)
    translations = [{"detected_source_language": "EN", "text": text} for text in "AB"]
    assert sent.json() == form.json() == asked.json() == {"translations": translations}


async def test_characters_are_counted_where_a_client_asks() -> None:
    async with translating("en-de") as (client, _):
        body = {"text": ["four", "ü"], "target_lang": "DE", "show_billed_characters": True}
        answer = await client.post("/v2/translate", json=body)
    counts = [each["billed_characters"] for each in answer.json()["translations"]]
    assert counts == [4, 1]


@pytest.mark.parametrize(("source", "target"), [("EN", "DE"), ("en-US", "de"), ("", "DE-AT")])
async def test_codes_may_have_regions_and_capitals(source: str, target: str) -> None:
    async with translating("en-de") as (client, server):
        body = {"text": "a", "source_lang": source, "target_lang": target}
        answer = await client.post("/v2/translate", data=body)
    assert answer.json()["translations"] == [{"detected_source_language": "EN", "text": "A"}]
    assert server.requests[0].options.target_language == target


async def test_source_that_a_client_leaves_out_is_detected_for_each_text() -> None:
    async with translating("en-de", "ko-de") as (client, server):
        body = {"text": ["a", "가", "ö"], "target_lang": "DE"}
        answer = await client.post("/v2/translate", json=body)
        named = await client.post("/v2/translate", json={**body, "source_lang": "KO"})
    translations = answer.json()["translations"]
    assert [each["detected_source_language"] for each in translations] == ["EN", "KO", "DE"]
    assert [each["text"] for each in translations] == ["A", "가", "ö"]
    assert len(server.detections) == 3
    codes = {each["detected_source_language"] for each in named.json()["translations"]}
    assert codes == {"KO"}


async def test_server_without_a_detector_wants_the_field_of_the_source() -> None:
    async with translating("en-de") as (client, server):
        server.has_detector = False
        answer = await client.post("/v2/translate", json=TEXTS)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("source_lang: ")
    assert answer.json()["message"].endswith("or name source_lang")


@pytest.mark.parametrize(
    "authorization", ["DeepL-Auth-Key key:fx", "DeepL-Auth-Key key", "Bearer key"]
)
async def test_key_is_the_token_of_the_caller(authorization: str) -> None:
    async with translating("en-de") as (client, server):
        headers = {"authorization": authorization}
        await client.post("/v2/translate", json=TEXTS, headers=headers)
        await client.get("/v2/languages", headers=headers)
    assert set(server.authorizations) == {"Bearer key"}


async def test_key_may_be_a_field() -> None:
    async with translating("en-de") as (client, server):
        await client.post("/v2/translate", data={**TEXTS, "auth_key": "key"})
    assert set(server.authorizations) == {"Bearer key"}


@pytest.mark.parametrize(
    ("text", "handling", "expected"),
    [
        ("<p>a <b>b</b></p>", "html", "<p>A <b>B</b></p>"),
        ("<seg>a <x id='1'/>b</seg>", "xml", "<seg>A <x id='1'/>B</seg>"),
        ("a <b", "", "A <B"),
    ],
)
async def test_tags_stay(text: str, handling: str, expected: str) -> None:
    async with translating("en-de") as (client, _):
        body = {"text": [text], "target_lang": "DE", "tag_handling": handling}
        answer = await client.post("/v2/translate", json=body)
    assert answer.json()["translations"][0]["text"] == expected


async def test_ignored_elements_stay_as_they_are() -> None:
    async with translating("en-de") as (client, _):
        body = {"text": "a <ph>b</ph> c", "target_lang": "DE", "tag_handling": "xml"}
        answer = await client.post("/v2/translate", data={**body, "ignore_tags": "ph, x"})
    assert "<ph>b</ph>" in answer.json()["translations"][0]["text"]


async def test_sentences_may_be_kept_together() -> None:
    async with translating("en-de") as (client, server):
        await client.post("/v2/translate", json={**TEXTS, "split_sentences": "0"})
    assert {request.options.segmentation for request in server.requests} == {"none"}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"target_lang": "DE"}, "text"),
        ({"text": "a"}, "target_lang"),
        ({"text": "a", "target_lang": "XX"}, "target_lang"),
        ({"text": "a", "target_lang": "DE", "source_lang": "XX"}, "source_lang"),
        ({"text": "a", "target_lang": "DE", "formality": "more"}, "formality"),
        ({"text": "a", "target_lang": "DE", "glossary_id": "g"}, "glossary_id"),
        ({"text": "a", "target_lang": "DE", "tag_handling": "rtf"}, "tag_handling"),
    ],
)
async def test_wrong_field_is_named_in_its_shape(fields: dict[str, str], name: str) -> None:
    async with translating("en-de") as (client, _):
        answer = await client.post("/v2/translate", data=fields)
    assert (answer.status_code, [*answer.json()]) == (400, ["message"])
    assert answer.json()["message"].startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("code", "status"), [("UNAUTHENTICATED", 403), ("RESOURCE_EXHAUSTED", 429)]
)
async def test_failures_have_the_statuses_that_its_clients_know(code: str, status: int) -> None:
    async with translating("en-de") as (client, _):
        body = {"text": f"fail {code}", "target_lang": "DE"}
        answer = await client.post("/v2/translate", data=body)
    assert (answer.status_code, [*answer.json()]) == (status, ["message"])


async def test_languages_of_targets_have_regions_where_clients_need_them() -> None:
    async with translating("en-de", "de-en") as (client, _):
        sources = (await client.get("/v2/languages?type=source")).json()
        targets = (await client.get("/v2/languages?type=target")).json()
        wrong = await client.get("/v2/languages?type=all")
    assert [each["language"] for each in sources] == ["DE", "EN"]
    assert [each["language"] for each in targets] == ["DE", "EN-GB", "EN-US"]
    assert all(each["supports_formality"] is False for each in targets)
    assert wrong.status_code == 400


async def test_nothing_is_limited() -> None:
    async with translating("en-de") as (client, _):
        usage = (await client.get("/v2/usage")).json()
    assert usage["character_count"] < usage["character_limit"]
