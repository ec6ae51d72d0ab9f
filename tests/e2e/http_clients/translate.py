"""Does what each client of the environment ``build/http-clients`` is for; prints JSON.

    python translate.py http://localhost:5000

The clients are as their authors publish them: nothing here knows the gateway but its address.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import deepl
from deep_translator import DeeplTranslator, LibreTranslator
from libretranslatepy import LibreTranslateAPI

SOURCE = "The coffee tastes good."


def libretranslatepy(url: str) -> Any:
    api = LibreTranslateAPI(url)
    return {
        "text": api.translate(SOURCE, "en", "de"),
        "languages": {each["code"]: each["targets"] for each in api.languages()},
    }


def deep_translator_libre(url: str) -> Any:
    translator = LibreTranslator(source="en", target="de", api_key="key", custom_url=f"{url}/")
    return {"text": translator.translate(SOURCE), "texts": translator.translate_batch([SOURCE] * 2)}


def deep_translator_deepl(url: str) -> Any:
    translator = DeeplTranslator(source="en", target="de", api_key="key")
    # It has no argument for the address.
    translator._base_url = f"{url}/v2/"
    return {"text": translator.translate(SOURCE)}


def deepl_sdk(url: str) -> Any:
    client = deepl.DeepLClient("key:fx", server_url=url)
    result = client.translate_text(SOURCE, source_lang="EN", target_lang="DE")
    results = client.translate_text([SOURCE] * 60, target_lang="DE")
    html = client.translate_text(
        "<p>The <b>coffee</b> tastes good.</p>", target_lang="DE", tag_handling="html"
    )
    [listed] = client.list_glossaries()
    glossary = client.get_glossary(listed.glossary_id)
    chosen = client.translate_text(SOURCE, source_lang="EN", target_lang="DE", glossary=glossary)
    usage = client.get_usage()
    try:
        client.translate_text(SOURCE, target_lang="JA")
        refusal = ""
    except deepl.DeepLException as error:
        refusal = str(error)
    return {
        "text": result.text,
        "detected": result.detected_source_lang,
        "billed": result.billed_characters,
        "texts": [each.text for each in results],
        "html": html.text,
        "sources": [each.code for each in client.get_source_languages()],
        "targets": [each.code for each in client.get_target_languages()],
        "glossary": [glossary.name, glossary.source_lang, glossary.target_lang],
        "glossary_pairs": [
            [pair.source_lang, pair.target_lang] for pair in client.get_glossary_languages()
        ],
        "entries": client.get_glossary_entries(glossary),
        "chosen": chosen.text,
        "is_limited": usage.any_limit_reached,
        "refusal": refusal,
    }


CLIENTS: list[Callable[[str], Any]] = [
    libretranslatepy,
    deep_translator_libre,
    deep_translator_deepl,
    deepl_sdk,
]

if __name__ == "__main__":
    address = sys.argv[1]
    print(json.dumps({client.__name__: client(address) for client in CLIENTS}))
