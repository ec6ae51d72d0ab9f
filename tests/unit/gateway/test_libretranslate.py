import io
import json
import zipfile
from dataclasses import replace
from typing import Any

import pytest
from httpx import AsyncClient, Response
from tests.unit.gateway.translating import Translator, translating
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve_gateway.admission import Bodies
from seqserve_gateway.app import FORMS

PAIRS = ["en-de"]
ENGLISH = {"source": "en", "target": "de"}


async def test_text_has_a_text_and_an_array_has_an_array(client: AsyncClient) -> None:
    one = await client.post("/translate", json={"q": "a", **ENGLISH})
    some = await client.post("/translate", json={"q": ["a", "b"], **ENGLISH})
    none = await client.post("/translate", json={"q": [], **ENGLISH})
    assert one.json() == {"translatedText": "A"}
    assert some.json() == {"translatedText": ["A", "B"]}
    assert none.json() == {"translatedText": []}


async def test_a_header_tells_whose_numbers_differ_and_what_was_cut(client: AsyncClient) -> None:
    texts = ["a №1", "b 2", "<p>c №3 ✂</p>"]
    some = await client.post("/translate", json={"q": texts, "format": "html", **ENGLISH})
    none = await client.post("/translate", json={"q": "b 2", **ENGLISH})
    assert some.headers["x-translation-warnings"] == "cut_short=2; numbers_differ=0,2"
    assert set(some.json()) == {"translatedText"}
    assert "x-translation-warnings" not in none.headers


async def test_detected_language_is_told(client: AsyncClient) -> None:
    auto = {"source": "auto", "target": "de"}
    one = await client.post("/translate", json={"q": "a", **auto})
    some = await client.post("/translate", json={"q": ["a", "ö"], **auto})
    named = await client.post("/translate", json={"q": "a", **ENGLISH})
    english = {"language": "en", "confidence": 87.5}
    assert one.json()["detectedLanguage"] == english
    assert some.json()["detectedLanguage"] == [english, {**english, "language": "de"}]
    assert "detectedLanguage" not in named.json()


@pytest.mark.parametrize(("q", "languages"), [("a", ["en"]), (["a", "가"], ["ko"]), ("ö", [])])
async def test_language_of_a_text_or_of_several_together_is_detected(
    q: str | list[str], languages: list[str]
) -> None:
    async with translating("en-de", "ko-en") as (client, _):
        answer = await client.post("/detect", json={"q": q})
        missing = await client.post("/detect", json={})
    assert answer.json() == [{"language": code, "confidence": 87.5} for code in languages]
    assert missing.json() == {"error": "q: is missing"}


async def test_alternatives_are_hypotheses(client: AsyncClient, server: Translator) -> None:
    answer = await client.post("/translate", json={"q": "a", "alternatives": 2, **ENGLISH})
    assert len(answer.json()["alternatives"]) == 2
    assert len({answer.json()["translatedText"], *answer.json()["alternatives"]}) == 3
    options = server.requests[0].options
    assert options.num_hypotheses == 3 <= options.beam_size


async def test_memory_for_alternatives_is_taken_beforehand(server: Translator) -> None:
    gateway = replace(gateway_of(server), bodies=Bodies(100, max_memory_bytes=0))
    async with opened(gateway, *FORMS) as client:
        answers = [
            await client.post("/translate", data={"q": "a", "alternatives": n, **ENGLISH})
            for n in (15, 1)
        ]
    assert [answer.status_code for answer in answers] == [503, 200]


DEEPLX = {"text": "a", "target_lang": "DE"}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"q": "a", "source": "en"}, "target"),
        ({"q": "a", "target": "de"}, "source"),
        (ENGLISH, "q"),
        ({"q": "a", "format": "rtf", **ENGLISH}, "format"),
        ({"q": "a", "alternatives": "16", **ENGLISH}, "alternatives"),
        ({"target_lang": "DE"}, "text"),
        (DEEPLX | {"text": ["a"]}, "text"),
        (DEEPLX | {"target_lang": "XX"}, "target_lang"),
        (DEEPLX | {"source_lang": "XX"}, "source_lang"),
        (DEEPLX | {"tag_handling": "rtf"}, "tag_handling"),
    ],
)
async def test_wrong_field(client: AsyncClient, fields: dict[str, Any], name: str) -> None:
    answer = await client.post("/translate", json=fields)
    assert (answer.status_code, [*answer.json()]) == (400, ["error"])
    assert answer.json()["error"].startswith(f"{name}: ")


async def test_key_is_the_callers_token(client: AsyncClient, server: Translator) -> None:
    await client.post("/translate", data={"q": "a", "api_key": "key", **ENGLISH})
    await client.get("/languages?api_key=key")
    assert set(server.authorizations) == {"Bearer key"}


@pytest.mark.parametrize("q", ["12", "", ["12", ""]])
async def test_wrong_key_is_refused_where_there_is_nothing_to_translate(
    client: AsyncClient, server: Translator, q: object
) -> None:
    server.has_tokens = True
    answer = await client.post("/translate", json={"q": q, "api_key": "key", **ENGLISH})
    assert answer.status_code == 403


async def translated(client: AsyncClient, name: str, content: bytes) -> Response:
    """Has a file translated; returns the answer to who fetches it."""
    files = {"file": (name, content)}
    answer = await client.post("/translate_file", data=ENGLISH, files=files)
    return await client.get(answer.json()["translatedFileUrl"])


async def test_file_is_translated_and_fetched_once_more(client: AsyncClient) -> None:
    film = b"1\n00:00:01,000 --> 00:00:02,000\ngood morning\n"
    first = await translated(client, "my film.srt", film)
    url = str(first.url)
    assert url.startswith("http://localhost:5000/download_file/")
    assert url.endswith("/my%20film_de.srt")
    for each in (first, await client.get(url)):
        assert each.content == film.replace(b"good morning", b"GOOD MORNING")
        assert each.headers["content-disposition"].startswith("attachment")
    missing = await client.get("/download_file/key/a.txt")
    assert (missing.status_code, [*missing.json()]) == (404, ["error"])


async def test_the_answer_tells_what_became_of_the_texts(client: AsyncClient) -> None:
    left = "".join(f"> <p>\n> é{n}\n> </p>\n\n" for n in range(9))
    pages = ["# good №7 ✂\n\n12\n\n`a`\n\n" + left, left.replace("é", "字" * 200)]
    answers = [
        await client.post("/translate_file", data=ENGLISH, files={"file": ("a.md", page.encode())})
        for page in pages
    ]
    headers = [answer.headers["x-translation-report"] for answer in answers]
    assert max(map(len, headers)) < 3000
    report, long = map(json.loads, headers)
    assert long["left"] == 9 > len(long["texts_left"]) > 0
    left = report.pop("texts_left")
    copied = {"no letter": 2}
    counts = {"translated": 1, "unchanged": 0, "copied": copied, "left": 9}
    warned = {"line": 1, "text": "good №7 ✂"}
    warned["reason"] = "numbers differ: 7 -> nothing; cut short: length"
    assert report == counts | {"warned": 1, "texts_warned": [warned]}
    reason = "is HTML within a quote, which is not read"
    assert len(left) == 5
    assert left[0] == {"line": 7, "text": "> <p>\n> é0\n> </p>\n", "reason": reason}


@pytest.mark.parametrize("form", ["text", "html"])
async def test_a_passage_that_the_model_cannot_read_stays(client: AsyncClient, form: str) -> None:
    text = "<p>моя <b>земля</b></p>" if form == "html" else "моя"
    body = {"q": [text, "a"], "format": form, "alternatives": 1} | ENGLISH
    answer = (await client.post("/translate", json=body)).json()
    assert answer["translatedText"] == [text, "A"]
    assert answer["alternatives"] == [[], ["A!"]]


async def test_a_file_needs_a_name_that_tells_its_format(client: AsyncClient) -> None:
    for path, data in {
        "/translate_file": ENGLISH,
        "/v2/document": {"target_lang": "DE"},
    }.items():
        answer = await client.post(path, data=data, files={"file": ("page", b"<p>a</p>")})
        assert answer.status_code == 400
        assert "the name 'page' has no suffix" in answer.text


@pytest.mark.parametrize(
    ("name", "text", "encoding"),
    [
        ("a.txt", "\ufeffgood\n", "utf-8"),
        ("a.txt", "\ufeffgood\n", "utf-16-le"),
        ("a.txt", "\ufeffgood\n", "utf-32-be"),
        ("a.properties", "a=grün ''{0}''\n", "utf-8"),
        ("a.properties", "a=grün ''{0}''\n", "iso-8859-1"),
    ],
)
async def test_encoding_of_a_file(client: AsyncClient, name: str, text: str, encoding: str) -> None:
    fetched = await translated(client, name, text.encode(encoding))
    expected = text.replace("good", "GOOD").replace("grün", "GRÜN")
    assert fetched.content.decode(encoding) == expected


# The capital of ÿ is not in Latin-1.
CDATA = (
    "<?xml version='1.0' encoding='latin-1'?><resources><string><![CDATA[ÿ]]></string></resources>"
).encode("latin-1")


def packed(text: bytes) -> bytes:
    """A document of OpenDocument with one part of text and one that stays."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", b"application/vnd.oasis.opendocument.text")
        archive.writestr("content.xml", text, zipfile.ZIP_DEFLATED)
    return file.getvalue()


async def test_the_text_of_an_archive_is_translated(client: AsyncClient) -> None:
    begin = '<o xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><text:p>'
    letter = packed(f"{begin}good <text:span>morning</text:span></text:p></o>".encode())
    fetched = await translated(client, "letter.odt", letter)
    with zipfile.ZipFile(io.BytesIO(fetched.content)) as archive:
        assert archive.namelist() == ["mimetype", "content.xml"]
        assert archive.infolist()[0].compress_type == zipfile.ZIP_STORED
        text = archive.read("content.xml").decode()
    assert text == f"{begin}GOOD <text:span>MORNING</text:span></text:p></o>"


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (("a.docx", b"PK no"), "is not a readable archive"),
        (("a.odt", packed(b"<a" + b" " * (65 << 20))), "of 67,108,864 can be read"),
        (("a.odt", packed(b" " * (5 << 20))), "text of 5,242,880 bytes"),
        (("a.odt", packed(b"<a/>")[5:]), "is not a readable archive"),
        (("a.odt", packed(b"<a>")), "line 1"),
        (("a.pdf", b"%PDF"), ".srt"),
        (("a.jsonl", b"{}"), ".srt"),
        (("a.txt", b"\xff"), "UTF-8"),
        (("a.xml", CDATA), "its translation has 'Ÿ', not in iso8859-1; convert the file to UTF-8"),
        (("a.txt", "good".encode("utf-32-le")), "has NUL characters as utf-32-le has them"),
    ],
)
async def test_unreadable_file(client: AsyncClient, file: tuple[str, bytes], reason: str) -> None:
    answer = await client.post("/translate_file", data=ENGLISH, files={"file": file})
    assert answer.status_code == 400
    assert reason in answer.json()["error"]


async def test_service_describes_itself() -> None:
    async with translating("en-de", "en-fr", "de-en") as (client, _):
        languages = (await client.get("/languages")).json()
        settings: dict[str, Any] = (await client.get("/frontend/settings")).json()
    assert languages == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
    ]
    assert settings["language"]["source"] == {"code": "de", "name": "German"}
    assert ".srt" in settings["supportedFilesFormat"]
    assert all(settings["supportedFilesFormat"])


async def test_text_with_a_target_lang_is_a_request_of_deeplx() -> None:
    async with translating("en-de", "ko-de") as (client, server):
        body = {"text": "<b>a</b>", "source_lang": "EN", "target_lang": "DE"}
        plain = await client.post("/translate", json={**body, "alternatives": 2})
        path = "/translate?token=key"
        found = await client.post(
            path, json={**body, "source_lang": "auto", "tag_handling": "html"}
        )
        other = await client.post("/translate", json={"q": "a", "target_lang": "DE", **ENGLISH})
    facts = plain.json()
    assert facts.pop("id") > 1_700_000_000_000_000
    assert facts == {
        "code": 200,
        "data": "<B>A</B>",
        "alternatives": ["<B>A</B>!", "<B>A</B>!!"],
        "source_lang": "EN",
        "target_lang": "DE",
        "method": "Free",
    }
    assert (found.json()["data"], found.json()["source_lang"]) == ("<b>A</b>", "EN")
    assert server.authorizations[-2] == "Bearer key"
    assert other.json() == {"translatedText": "A"}


async def test_suggestions_are_off(client: AsyncClient) -> None:
    answer = await client.post("/suggest", data={"q": "a", "s": "b", **ENGLISH})
    settings = (await client.get("/frontend/settings")).json()
    assert (answer.status_code, [*answer.json()]) == (403, ["error"])
    assert settings["suggestions"] is False
