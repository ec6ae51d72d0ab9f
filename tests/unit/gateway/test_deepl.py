from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.unit.gateway.translating import TranslatingServer, translating

from seqserve.v1 import model_pb2

HEADERS = {"authorization": "DeepL-Auth-Key key:fx"}
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


async def test_a_header_tells_whose_numbers_differ() -> None:
    async with translating("en-de") as (client, _):
        body = {"text": ["a", "b №1"], "source_lang": "EN", "target_lang": "DE"}
        answer = await client.post("/v2/translate", json=body)
    assert answer.headers["x-translation-warnings"] == "numbers_differ=1"


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
        ("<a title='c'>a</a> | <a>b</a>", "html", "<a title='C'>A</a> | <a>B</a>"),
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


@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        ({}, {"one", "two six"}),
        ({"outline_detection": "0"}, {"one two six"}),
        ({"outline_detection": False}, {"one two six"}),
        ({"splitting_tags": "c, x"}, {"one", "two", "six"}),
        ({"non_splitting_tags": ["b"]}, {"one two six"}),
    ],
)
async def test_options_of_xml_tell_what_divides_a_text(
    fields: dict[str, object], sources: set[str]
) -> None:
    text = "<b>one</b> <b>two <c>six</c></b>"
    async with translating("en-de") as (client, server):
        body = {"text": [text], "target_lang": "DE", "tag_handling": "xml", **fields}
        answer = await client.post("/v2/translate", json=body)
    assert answer.json()["translations"][0]["text"] == "<b>ONE</b> <b>TWO <c>SIX</c></b>"
    assert {request.source for request in server.requests} == sources


async def test_what_is_no_xml_is_refused() -> None:
    async with translating("en-de") as (client, _):
        body = {"text": ["a <b"], "target_lang": "DE", "tag_handling": "xml"}
        answer = await client.post("/v2/translate", json=body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("text: line 1 is not well-formed XML")


@pytest.mark.parametrize(
    ("options", "segmentation", "source"),
    [
        ({"split_sentences": 0}, "lines", "a b c"),
        ({"split_sentences": False}, "lines", "a b c"),
        ({"split_sentences": True}, "sentences", "a b\nc"),
        ({"split_sentences": "nonewlines"}, "sentences", "a b c"),
        (
            {"formality": "prefer_more", "context": "", "show_billed_characters": 1},
            "sentences",
            "a b\nc",
        ),
    ],
)
async def test_options_are_obeyed(
    options: dict[str, object], segmentation: str, source: str
) -> None:
    async with translating("en-de") as (client, server):
        body = {"text": ["a b\nc"], "source_lang": "EN", "target_lang": "DE", **options}
        answer = await client.post("/v2/translate", json=body)
    assert answer.status_code == 200, answer.text
    [request] = server.requests
    assert (request.options.segmentation, request.source) == (segmentation, source)


@pytest.mark.parametrize("formality", ["default", "more", "prefer_less"])
async def test_the_server_gets_the_formality(formality: str) -> None:
    async with translating("en-de") as (client, server):
        body = {"text": "a", "target_lang": "DE", "formality": formality}
        await client.post("/v2/translate", json=body)
    [request] = server.requests
    sent = {formality} - {"default"}
    assert {request.options.formality} - {""} == sent


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"target_lang": "DE"}, "text"),
        ({"text": "a", "target_lang": "DE", "context": "of ships"}, "context"),
        (
            {"text": "a", "target_lang": "DE", "custom_instructions": "be brief"},
            "custom_instructions",
        ),
        ({"text": "a", "target_lang": "DE", "split_sentences": "2"}, "split_sentences"),
        ({"text": "a", "target_lang": "DE", "formality": "polite"}, "formality"),
        ({"text": "a", "target_lang": "DE", "formality": "less"}, "formality"),
        ({"text": "a"}, "target_lang"),
        ({"text": "a", "target_lang": "XX"}, "target_lang"),
        ({"text": "a", "target_lang": "DE", "source_lang": "XX"}, "source_lang"),
        ({"text": "a", "target_lang": "DE", "tag_handling": "rtf"}, "tag_handling"),
    ],
)
async def test_wrong_field_is_named_in_its_shape(fields: dict[str, str], name: str) -> None:
    async with translating("en-de") as (client, _):
        answer = await client.post("/v2/translate", data=fields)
    assert (answer.status_code, [*answer.json()]) == (400, ["message"])
    assert answer.json()["message"].startswith(f"{name}: ")


async def test_languages_of_targets_have_regions_where_clients_need_them() -> None:
    async with translating("en-de", "de-en") as (client, _):
        sources = (await client.get("/v2/languages?type=source")).json()
        targets = (await client.get("/v2/languages?type=target")).json()
        wrong = await client.get("/v2/languages?type=all")
    assert [each["language"] for each in sources] == ["DE", "EN"]
    assert [each["language"] for each in targets] == ["DE", "EN-GB", "EN-US"]
    assert [each["supports_formality"] for each in targets] == [True, False, False]
    assert wrong.status_code == 400


@pytest.mark.parametrize(
    ("of_day", "of_month", "expected"),
    [
        ((), (), (0, 0)),
        ((5, 0), (90, 0), (90, 0)),
        ((5, 20), (90, 0), (5, 20)),
        ((5, 20), (90, 100), (90, 100)),
    ],
)
async def test_usage_is_that_of_the_period_with_a_quota(
    of_day: tuple[int, ...], of_month: tuple[int, ...], expected: tuple[int, int]
) -> None:
    async with translating("en-de") as (client, server):
        server.usages = [
            model_pb2.Usage(period=period, characters=counts[0], max_characters=counts[1])
            for period, counts in (("day", of_day), ("month", of_month))
            if counts
        ]
        usage = (await client.get("/v2/usage", headers=HEADERS)).json()
    count, limit = expected
    assert usage["character_count"] == count
    assert usage["character_limit"] == (limit or 10**12)
    assert server.authorizations == ["Bearer key"]


async def test_quota_that_is_used_up_has_its_own_status() -> None:
    async with translating("en-de") as (client, server):
        server.is_beyond_quota = True
        answers = [
            await client.post("/v2/translate", data={"text": "a", "target_lang": "DE"}),
            await client.post("/translate", data={"q": "a", "source": "en", "target": "de"}),
        ]
    assert [answer.status_code for answer in answers] == [456, 429]
    assert {answer.headers["retry-after"] for answer in answers} == {"3600"}
    assert "quota" in answers[0].json()["message"]


PRODUCTS = {
    "glossary_id": "products.en_GB-de",
    "name": "products",
    "ready": True,
    "source_lang": "en",
    "target_lang": "de",
    "creation_time": "2001-09-09T01:46:40.000Z",
    "entry_count": 1,
}


@asynccontextmanager
async def with_glossaries() -> AsyncIterator[tuple[httpx.AsyncClient, TranslatingServer]]:
    async with translating("en-de", "ko-de") as (client, server):
        server.glossaries = [
            model_pb2.Glossary(
                name=name,
                source_language=source,
                target_language="de",
                entry_count=1,
                modified_s=1_000_000_000,
            )
            for name, source in (("products", "en_GB"), ("drinks", "ko"))
        ]
        yield client, server


async def test_glossaries_are_listed_described_and_read() -> None:
    async with with_glossaries() as (client, _):
        listed = await client.get("/v2/glossaries")
        described = await client.get("/v2/glossaries/products.en_GB-de")
        entries = await client.get("/v2/glossaries/products.en_GB-de/entries")
        pairs = await client.get("/v2/glossary-language-pairs")
        unknown = await client.get("/v2/glossaries/products")
    assert [each["glossary_id"] for each in listed.json()["glossaries"]] == [
        "products.en_GB-de",
        "drinks.ko-de",
    ]
    assert listed.json()["glossaries"][0] == described.json() == PRODUCTS
    assert entries.headers["content-type"].startswith("text/tab-separated-values")
    assert entries.text == "a\tb\n"
    assert pairs.json()["supported_languages"] == [
        {"source_lang": source, "target_lang": "de"} for source in ("en", "ko")
    ]
    assert unknown.status_code == 404 and "'products' is not" in unknown.json()["message"]


async def test_glossary_of_a_translation() -> None:
    async with with_glossaries() as (client, server):
        body = {**TEXTS, "source_lang": "EN", "glossary_id": "products.en_GB-de"}
        answers = [await client.post("/v2/translate", json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert server.listings == 1
    assert {each.options.glossary for each in server.requests} == {"products"}


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"glossary_id": "products.en_GB-de"}, 400, "source_lang: is missing"),
        ({"glossary_id": "none", "source_lang": "EN"}, 404, "glossary_id: 'none' is not"),
        ({"glossary_id": "drinks.ko-de", "source_lang": "EN"}, 400, "glossary_id: is for ko to de"),
        ({"glossary_id": "drinks.ko-de", "source_lang": "KO"}, 400, "glossary_id: is of one pair"),
        ({"glossary_ids": ["a", "b"]}, 400, "glossary_ids: is not supported"),
    ],
)
async def test_glossary_that_does_not_go_with_a_request(
    fields: dict[str, object], status: int, message: str
) -> None:
    async with with_glossaries() as (client, _):
        answer = await client.post("/v2/translate", json={**TEXTS, **fields})
    assert answer.status_code == status
    assert answer.json()["message"].startswith(message)


async def test_glossaries_are_changed_by_the_operator_alone() -> None:
    async with with_glossaries() as (client, _):
        created = await client.post("/v2/glossaries", json={"name": "a"})
        deleted = await client.delete("/v2/glossaries/products.en_GB-de")
    for answer in (created, deleted):
        assert answer.status_code == 400
        assert "files of the operator" in answer.json()["message"]
