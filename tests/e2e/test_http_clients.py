"""Clients of LibreTranslate, DeepL and OpenAI, unchanged, call ``seqserve gateway`` and a server.

The packages are in an environment of their own, ``build/http-clients``. Mastodon and Weblate are no
packages of Python: their requests are written down here as their public sources send them.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.gateway import Gateway, gateway_of
from tests.support.process import MODELS, PATIENCE_S, ROOT, ServerProcess

pytestmark = pytest.mark.newcomer

COFFEE, KAFFEE = "The coffee tastes good.", "Der Kaffee schmeckt gut."
LANGUAGES = {"de": ["en", "ko"], "en": ["de", "ko"], "ko": ["de", "en"]}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose server has a glossary, beside the shipped models."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "glossaries").mkdir()
    (folder / "glossaries" / "drinks.en-de.tsv").write_text("coffee\tMokka\n")
    options = ("--glossaries", str(folder / "glossaries"))
    with ServerProcess(MODELS, folder, *options, "--watch-interval-s", "0.5") as server:
        with gateway_of(server.target, *options) as gateway:
            yield gateway
        server.stop()


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with gateway.client() as client:
        yield client


@pytest.fixture(scope="module")
def answers(gateway: Gateway) -> dict[str, Any]:
    python = ROOT / "build" / "http-clients" / "bin" / "python"
    assert python.exists(), "build/http-clients is missing: `make build/http-clients/.ready`"
    script = Path(__file__).parent / "http_clients" / "translate.py"
    # A proxy of the machine cannot reach this process.
    environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
    command, patience = [str(python), str(script), gateway.url], {"timeout": PATIENCE_S}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, **patience)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


ANSWERS = {
    "libretranslatepy": {"text": KAFFEE, "languages": LANGUAGES},
    "deep_translator_libre": {"text": KAFFEE, "texts": [KAFFEE] * 2},
    "deep_translator_deepl": {"text": KAFFEE},
    "deepl_glossaries": {
        "name": "Our list",
        "entries": "tea\tT\ncoffee\tMokka\n",
        "is_used": True,
        "left": [["EN", "DE", 1]],
        "listed": ["drinks", "One"],
        "refused": True,
        "after": ["drinks"],
    },
    "openai_sdk": {
        "models": ["de-en", "en-de", "en-ko", "ko-en"],
        "model": "en-de",
        "one": ["text_completion", "en-de", KAFFEE, "stop"],
        "is_counted": True,
        "many": [40, True],
        "best": KAFFEE,
        "long": ["length", 2],
        "top": [2, 2],
        "limited": KAFFEE,
        "stopped": "Der Kaffee",
        "are_samples_equal": True,
        "stream": [KAFFEE, KAFFEE],
        "ends": ["stop", "stop"],
        "is_streamed": True,
        "usage": [[], True],
        "refused": {
            "echo": ["BadRequestError", "echo", "invalid_argument"],
            "model": ["NotFoundError", None, "model_not_found"],
            "max_tokens": ["BadRequestError", "max_tokens", "invalid_argument"],
            "prompt": ["BadRequestError", "prompt", "invalid_argument"],
            "chat": [True],
            "retrieved": [True],
        },
    },
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_clients(answers: dict[str, Any], name: str) -> None:
    assert answers[name] == ANSWERS[name]


def test_sdk_of_deepl(answers: dict[str, Any]) -> None:
    answer = answers["deepl_sdk"]
    assert "target_lang: no model writes 'JA'" in answer.pop("refusal")
    assert "Mokka" in answer.pop("chosen")
    assert answer == {
        "text": KAFFEE,
        "detected": "EN",
        "billed": len(COFFEE),
        "texts": [KAFFEE] * 60,
        "html": "<p>Der <b>Kaffee</b> schmeckt gut.</p>",
        "sources": ["DE", "EN", "KO"],
        "targets": ["DE", "EN-GB", "EN-US", "KO"],
        "glossary": ["drinks", "EN", "DE"],
        "glossary_pairs": [["de", "en"], ["en", "de"], ["en", "ko"], ["ko", "en"]],
        "entries": {"coffee": "Mokka"},
        "is_limited": False,
    }


def test_documents_of_deepl(answers: dict[str, Any]) -> None:
    answer = answers["deepl_documents"]
    gone, format_, language = answer.pop("refusals")
    assert gone.startswith("DeepLException: Not found")
    assert "a.pdf is not supported" in format_
    assert "target_lang: no model writes 'JA'" in language
    assert language.startswith("DocumentTranslationException")
    assert answer == {
        "status": "done",
        "billed": len(COFFEE),
        "text": f"# {KAFFEE}\n",
        "html": f"<p>{KAFFEE}</p>",
        "fetched": KAFFEE,
    }


def test_mastodon(client: httpx.Client) -> None:
    """Source: mastodon/mastodon, ``app/lib/translation_service/libre_translate.rb``."""
    languages = client.get("/languages").json()
    assert {each["code"]: each["targets"] for each in languages} == LANGUAGES
    body = {
        "q": ["<p>The <b>coffee</b> tastes good.</p>", "Poll: the house is old."],
        "source": "en",
        "target": "de",
        "format": "html",
        "api_key": None,
    }
    answer = client.post("/translate", json=body)
    assert answer.headers["content-type"] == "application/json"
    first, second = answer.json()["translatedText"]
    assert first == "<p>Der <b>Kaffee</b> schmeckt gut.</p>"
    assert "Haus" in second


def test_weblate(client: httpx.Client) -> None:
    """Source: WeblateOrg/weblate, ``weblate/machinery/libretranslate.py``."""
    targets = {each["code"]: each["targets"] for each in client.get("/languages").json()}
    assert "de" in targets["en"]
    body = {"api_key": "", "q": COFFEE, "source": "en", "target": "de"}
    assert client.post("/translate", json=body).json() == {"translatedText": KAFFEE}
    refused = client.post("/translate", json={**body, "target": "xx"})
    assert refused.status_code == 400
    assert "target: no model writes 'xx'" in refused.json()["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["/translate", "-H", "Content-Type: application/json", "-d",
         json.dumps({"q": COFFEE, "source": "en", "target": "de", "format": "text",
                     "alternatives": 3, "api_key": ""})],
        ["/translate", "-d", f"q={COFFEE}", "-d", "source=en", "-d", "target=de"],
        ["/translate", "-F", f"q={COFFEE}", "-F", "source=en", "-F", "target=de"],
        # Of an address that ends with a slash.
        ["//translate", "-d", f"q={COFFEE}", "-d", "source=en", "-d", "target=de"],
        ["/v2/translate", "-H", "Authorization: DeepL-Auth-Key key", "-H",
         "Content-Type: application/json", "-d",
         json.dumps({"text": [COFFEE], "target_lang": "DE"})],
        ["/v2/translate", "-H", "Authorization: DeepL-Auth-Key key", "-d", f"text={COFFEE}",
         "-d", "target_lang=DE"],
        ["/translate", "-H", "Content-Type: application/json", "-d",
         json.dumps({"text": COFFEE, "source_lang": "EN", "target_lang": "DE"})],
        ["/v1/completions", "-H", "Content-Type: application/json", "-d",
         json.dumps({"prompt": COFFEE, "n": 2})],
    ],
)  # fmt: skip
def test_curl_of_the_documentations(gateway: Gateway, arguments: list[str]) -> None:
    path, *options = arguments
    command = ["curl", "--silent", "--noproxy", "*", gateway.url + path, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert KAFFEE in done.stdout


def test_file_is_translated_and_fetched(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nIt rains.\n")
    curl = ["curl", "--silent", "--noproxy", "*"]
    file = ["-F", f"file=@{tmp_path / 'film.srt'}", "-F", "source=en", "-F", "target=de"]
    done = subprocess.run(
        [*curl, f"{gateway.url}/translate_file", *file], capture_output=True, check=True
    )
    url = json.loads(done.stdout)["translatedFileUrl"]
    fetched = subprocess.run([*curl, url], capture_output=True, text=True, check=True)
    assert fetched.stdout == "1\n00:00:01,000 --> 00:00:02,000\nEs regnet.\n"
