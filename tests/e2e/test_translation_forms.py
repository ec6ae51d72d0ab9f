"""LibreTranslate's and DeepL's forms choose models by languages: direct, over a pivot, detected."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from .gateway import gateway_of
from .process import ServerProcess

COFFEE, KAFFEE, KEOPI = "The coffee tastes good.", "Der Kaffee schmeckt gut.", "커피가 맛이 좋네요."


@pytest.fixture(scope="module")
def client(shipped: ServerProcess) -> Iterator[httpx.Client]:
    with gateway_of(shipped.target) as gateway, gateway.client() as client:
        yield client


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [(COFFEE, "en", "de"), (COFFEE, "eng", "de-AT"), (KEOPI, "ko", "de"), (KEOPI, "KO-kr", "DE")],
)
def test_pair_is_translated_by_one_model_or_over_a_pivot(
    client: httpx.Client, text: str, source: str, target: str
) -> None:
    body = {"q": text, "source": source, "target": target}
    assert client.post("/translate", json=body).json() == {"translatedText": KAFFEE}
    form = {"text": text, "source_lang": source, "target_lang": target}
    [answer] = client.post("/v2/translate", data=form).json()["translations"]
    assert answer == {"detected_source_language": source[:2].upper(), "text": KAFFEE}


def test_every_text_is_in_its_own_language(client: httpx.Client) -> None:
    texts = [COFFEE, KEOPI, KAFFEE]
    body = {"q": texts, "source": "auto", "target": "de"}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"] == [KAFFEE] * 3
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "ko", "de"]
    assert all(90 < each["confidence"] <= 100 for each in answer["detectedLanguage"])
    answer = client.post("/v2/translate", json={"text": texts, "target_lang": "DE"}).json()
    assert [each["text"] for each in answer["translations"]] == [KAFFEE] * 3
    detected = [each["detected_source_language"] for each in answer["translations"]]
    assert detected == ["EN", "KO", "DE"]


def test_page_and_file_are_detected_and_go_over_the_pivot(client: httpx.Client) -> None:
    body = {"source": "auto", "target": "de"}
    page = {"q": f"<h1>{KEOPI}</h1><p>{KEOPI}</p>", "format": "html", **body}
    answer = client.post("/translate", json=page).json()
    assert answer["translatedText"] == f"<h1>{KAFFEE}</h1><p>{KAFFEE}</p>"
    assert answer["detectedLanguage"]["language"] == "ko"
    film = f"1\n00:00:01,000 --> 00:00:02,000\n{KEOPI}\n"
    files = {"file": ("film.srt", film.encode())}
    url = client.post("/translate_file", data=body, files=files).json()["translatedFileUrl"]
    assert client.get(url).text == film.replace(KEOPI, KAFFEE)


def test_language_of_a_text_is_detected(client: httpx.Client) -> None:
    for text, code in ((COFFEE, "en"), (KEOPI, "ko")):
        assert client.post("/detect", data={"q": text}).json()[0]["language"] == code


def test_pairs_over_a_pivot_are_listed(client: httpx.Client) -> None:
    languages = client.get("/languages").json()
    assert {each["code"]: each["targets"] for each in languages} == {
        "en": ["de", "ko"],
        "ko": ["de", "en"],
    }


@pytest.mark.parametrize(
    ("source", "target", "field"), [("en", "fr", "target"), ("fr", "de", "source")]
)
def test_refusal_names_the_field_and_what_there_is(
    client: httpx.Client, source: str, target: str, field: str
) -> None:
    body = {"q": COFFEE, "source": source, "target": target}
    refused = client.post("/translate", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"].startswith(f"{field}: no model ")
    form = {"text": [COFFEE] * 2, "source_lang": source, "target_lang": target}
    refused = client.post("/v2/translate", json=form)
    assert refused.status_code == 400
    assert refused.json()["message"].startswith(f"{field}_lang: no model ")
