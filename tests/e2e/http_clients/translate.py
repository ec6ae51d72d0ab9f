"""Does what each client of the environment ``build/http-clients`` is for; prints JSON.

    python translate.py http://localhost:5000

The clients are as their authors publish them: nothing here knows the gateway but its address.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deepl
import openai
from deep_translator import DeeplTranslator, LibreTranslator
from deepl.api_data import MultilingualGlossaryDictionaryEntries as Terms
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


def deepl_glossaries(url: str) -> Any:
    client = deepl.DeepLClient("key:fx", server_url=url)
    pair: dict[str, Any] = {"source_lang": "EN", "target_lang": "DE"}
    back = Terms("DE", "EN", {"Kaffee": "brew"})
    made = client.create_multilingual_glossary("Our list", [Terms("EN", "DE", {"tea": "T"}), back])
    client.update_multilingual_glossary_dictionary(made, Terms("EN", "DE", {"coffee": "Mokka"}))
    [both] = client.get_multilingual_glossary_entries(made, "EN", "DE").dictionaries
    client.replace_multilingual_glossary_dictionary(made, Terms("EN", "DE", {"coffee": "Trank"}))
    text = client.translate_text(SOURCE, glossary=made, **pair).text
    client.delete_multilingual_glossary_dictionary(made, source_lang="DE", target_lang="EN")
    left = client.get_multilingual_glossary(made.glossary_id).dictionaries
    client.delete_multilingual_glossary(made)
    one = client.create_glossary("One", entries={"tea": "T"}, **pair)
    listed = [each.name for each in client.list_multilingual_glossaries()]
    client.delete_glossary(one)
    refused = ""
    try:
        client.delete_multilingual_glossary("drinks")
    except deepl.GlossaryNotFoundException as error:
        refused = str(error)
    return {
        "name": made.name,
        "entries": both.entries,
        "is_used": "Trank" in text,
        "left": [[each.source_lang, each.target_lang, each.entry_count] for each in left],
        "listed": listed,
        "refused": "one of the operator" in refused,
        "after": [each.name for each in client.list_glossaries()],
    }


def openai_sdk(url: str) -> Any:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    pair = {"source_language": "en", "target_language": "de"}
    one = client.completions.create(model="en-de", prompt=SOURCE, extra_body=pair)
    many = client.completions.create(model="en-de", prompt=[SOURCE] * 20, n=2, best_of=4)
    long = client.completions.create(model="en-de", prompt=SOURCE, max_tokens=2, logprobs=2)
    # As LangChain sends, above the limit of the model.
    limited = client.completions.create(model="en-de", prompt=SOURCE, max_tokens=256)
    stopped = client.completions.create(model="en-de", prompt=SOURCE, stop=[" schmeckt"])
    sampling = {"model": "en-de", "prompt": SOURCE, "temperature": 1.0, "top_p": 0.9, "n": 3}
    samples = [client.completions.create(**sampling, seed=7) for _ in range(2)]
    stream = client.completions.create(
        model="en-de", prompt=[SOURCE, SOURCE], stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    parts = [choice for chunk in chunks for choice in chunk.choices]
    refused = {}
    wrong: dict[str, Any] = {
        "echo": {"echo": True},
        "model": {"model": "gpt-3.5-turbo-instruct"},
        "max_tokens": {"max_tokens": 0},
        "prompt": {"prompt": [1, 2]},
    }
    for name, fields in wrong.items():
        try:
            client.completions.create(**{"model": "en-de", "prompt": SOURCE, **fields})
        except openai.APIStatusError as error:
            refused[name] = [type(error).__name__, error.param, error.code]
    try:
        client.chat.completions.create(model="en-de", messages=[{"role": "user", "content": "a"}])
    except openai.BadRequestError as error:
        refused["chat"] = ["prompt to /v1/completions" in error.message]
    try:
        client.models.retrieve("none")
    except openai.NotFoundError as error:
        refused["retrieved"] = ["no model 'none'" in error.message]
    assert long.choices[0].logprobs is not None and one.usage is not None
    return {
        "models": sorted(model.id for model in client.models.list()),
        "model": client.models.retrieve("en-de").id,
        "one": [one.object, one.model, one.choices[0].text, one.choices[0].finish_reason],
        "is_counted": one.usage.total_tokens > one.usage.completion_tokens > 3,
        "many": [len(many.choices), [each.index for each in many.choices] == [*range(40)]],
        "best": many.choices[38].text,
        "long": [long.choices[0].finish_reason, len(long.choices[0].logprobs.tokens or [])],
        "top": [len(each) for each in long.choices[0].logprobs.top_logprobs or []],
        "limited": limited.choices[0].text,
        "stopped": stopped.choices[0].text,
        "are_samples_equal": samples[0].choices == samples[1].choices,
        "stream": ["".join(p.text for p in parts if p.index == number) for number in (0, 1)],
        "ends": [part.finish_reason for part in parts if part.finish_reason],
        "is_streamed": len(parts) > 3,
        "usage": [last.choices, last.usage is not None and last.usage.completion_tokens > 6],
        "refused": refused,
    }


def deepl_documents(url: str) -> Any:
    client = deepl.DeepLClient("key:fx", server_url=url)
    with tempfile.TemporaryDirectory() as folder:
        source, target, page = (Path(folder) / name for name in ("a.md", "b.md", "c.html"))
        source.write_text(f"# {SOURCE}\n")
        page.write_text(f"<p>{SOURCE}</p>")
        status = client.translate_document_from_filepath(
            source, target, source_lang="EN", target_lang="DE", formality="prefer_more"
        )
        text = target.read_text()
        written = io.BytesIO()
        with page.open("rb") as file:
            client.translate_document(file, written, target_lang="DE")
    handle = client.translate_document_upload(SOURCE, filename="a.txt", target_lang="DE")
    client.translate_document_wait_until_done(handle)
    fetched = client.translate_document_download(handle)
    refusals = []
    for call in (
        lambda: client.translate_document_download(handle),
        lambda: client.translate_document_upload(b"", filename="a.pdf", target_lang="DE"),
        lambda: client.translate_document(SOURCE, io.BytesIO(), filename="a.txt", target_lang="JA"),
    ):
        try:
            call()
        except deepl.DeepLException as error:
            refusals.append(f"{type(error).__name__}: {error}")
    return {
        "status": status.status.value,
        "billed": status.billed_characters,
        "text": text,
        "html": written.getvalue().decode(),
        "fetched": fetched.content.decode(),
        "refusals": refusals,
    }


CLIENTS: list[Callable[[str], Any]] = [
    libretranslatepy,
    deep_translator_libre,
    deep_translator_deepl,
    deepl_sdk,
    deepl_glossaries,
    openai_sdk,
    deepl_documents,
]

if __name__ == "__main__":
    address = sys.argv[1]
    print(json.dumps({client.__name__: client(address) for client in CLIENTS}))
