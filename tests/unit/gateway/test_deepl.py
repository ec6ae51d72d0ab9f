import pytest
from httpx import AsyncClient
from tests.unit.gateway.translating import Translator, translating

from seqserve.v1 import model_pb2

PAIRS = ["en-de"]
HEADERS = {"authorization": "DeepL-Auth-Key key:fx"}
TEXTS = {"text": ["a", "b"], "target_lang": "DE"}


async def test_several_texts_are_answered_in_order(client: AsyncClient) -> None:
    sent = await client.post("/v2/translate", json=TEXTS)
    form = await client.post("/v2/translate", data=TEXTS)
    asked = await client.get("/v2/translate", params=TEXTS)
    translations = [{"detected_source_language": "EN", "text": text} for text in "AB"]
    assert sent.json() == form.json() == asked.json() == {"translations": translations}


async def test_characters_are_counted_and_a_header_tells_warnings(client: AsyncClient) -> None:
    body = {"text": ["four", "ü №1"], "source_lang": "EN", "target_lang": "DE"}
    answer = await client.post("/v2/translate", json={**body, "show_billed_characters": True})
    counts = [each["billed_characters"] for each in answer.json()["translations"]]
    assert counts == [4, 4]
    assert answer.headers["x-translation-warnings"] == "numbers_differ=1"


@pytest.mark.parametrize(("source", "target"), [("EN", "DE"), ("en-US", "de"), ("", "DE-AT")])
async def test_codes_may_have_regions_and_capitals(
    client: AsyncClient, server: Translator, source: str, target: str
) -> None:
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


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"authorization": "DeepL-Auth-Key key:fx"}, {}),
        ({"authorization": "DeepL-Auth-Key key"}, {}),
        ({"authorization": "Bearer key"}, {}),
        ({}, {"auth_key": "key"}),
    ],
)
async def test_key_is_the_callers_token(
    client: AsyncClient, server: Translator, headers: dict[str, str], fields: dict[str, str]
) -> None:
    await client.post("/v2/translate", data={**TEXTS, **fields}, headers=headers)
    await client.get("/v2/languages", params=fields, headers=headers)
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
async def test_tags_stay(client: AsyncClient, text: str, handling: str, expected: str) -> None:
    body = {"text": [text], "target_lang": "DE", "tag_handling": handling}
    answer = await client.post("/v2/translate", json=body)
    assert answer.json()["translations"][0]["text"] == expected


async def test_ignored_elements_stay_as_they_are(client: AsyncClient) -> None:
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
    client: AsyncClient, server: Translator, fields: dict[str, object], sources: set[str]
) -> None:
    text = "<b>one</b> <b>two <c>six</c></b>"
    body = {"text": [text], "target_lang": "DE", "tag_handling": "xml", **fields}
    answer = await client.post("/v2/translate", json=body)
    assert answer.json()["translations"][0]["text"] == "<b>ONE</b> <b>TWO <c>SIX</c></b>"
    assert {request.source for request in server.requests} == sources


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"split_sentences": 0}, ("lines", "a b c", "")),
        ({"split_sentences": False}, ("lines", "a b c", "")),
        ({"split_sentences": True}, ("sentences", "a b\nc", "")),
        ({"split_sentences": "nonewlines"}, ("sentences", "a b c", "")),
        ({"context": "", "show_billed_characters": 1}, ("sentences", "a b\nc", "")),
        ({"formality": "default"}, ("sentences", "a b\nc", "")),
        ({"formality": "more"}, ("sentences", "a b\nc", "more")),
        ({"formality": "prefer_less"}, ("sentences", "a b\nc", "prefer_less")),
    ],
)
async def test_options_are_obeyed(
    client: AsyncClient,
    server: Translator,
    options: dict[str, object],
    sent: tuple[str, str, str],
) -> None:
    body = {"text": ["a b\nc"], "source_lang": "EN", "target_lang": "DE", **options}
    answer = await client.post("/v2/translate", json=body)
    assert answer.status_code == 200, answer.text
    [request] = server.requests
    assert (request.options.segmentation, request.source, request.options.formality) == sent


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"text": None}, "text: "),
        ({"context": "of ships"}, "context: "),
        ({"custom_instructions": "be brief"}, "custom_instructions: "),
        ({"split_sentences": "2"}, "split_sentences: "),
        ({"formality": "polite"}, "formality: "),
        ({"formality": "less"}, "formality: "),
        ({"target_lang": None}, "target_lang: "),
        ({"target_lang": "XX"}, "target_lang: "),
        ({"source_lang": "XX"}, "source_lang: "),
        ({"tag_handling": "rtf"}, "tag_handling: "),
        ({"text": "a <b", "tag_handling": "xml"}, "text: line 1 is not well-formed XML"),
    ],
)
async def test_wrong_field(client: AsyncClient, fields: dict[str, str | None], reason: str) -> None:
    body = {"text": "a", "target_lang": "DE"} | fields
    sent = {name: value for name, value in body.items() if value is not None}
    answer = await client.post("/v2/translate", data=sent)
    assert (answer.status_code, [*answer.json()]) == (400, ["message"])
    assert answer.json()["message"].startswith(reason)


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
    client: AsyncClient,
    server: Translator,
    of_day: tuple[int, ...],
    of_month: tuple[int, ...],
    expected: tuple[int, int],
) -> None:
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


async def test_used_up_quota_has_a_status(client: AsyncClient, server: Translator) -> None:
    server.is_beyond_quota = True
    answers = [
        await client.post("/v2/translate", data={"text": "a", "target_lang": "DE"}),
        await client.post("/translate", data={"q": "a", "source": "en", "target": "de"}),
    ]
    assert [answer.status_code for answer in answers] == [456, 429]
    assert {answer.headers["retry-after"] for answer in answers} == {"3600"}
    assert "quota" in answers[0].json()["message"]
