import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient
from tests.unit.gateway.translating import Translator
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve.v1 import model_pb2
from seqserve_gateway import glossaries as module
from seqserve_gateway.app import FORMS

PAIRS = ["en-de"]
TEXTS = {"text": ["a", "b"], "target_lang": "DE"}
TERMS = {
    "source_lang": "EN",
    "target_lang": "de",
    "entries": "a\tb\n#c\td",
    "entries_format": "tsv",
}
BODY = {"name": "a", "dictionaries": [TERMS]}


BACK = {**TERMS, "source_lang": "DE", "target_lang": "EN"}
PRODUCTS = {
    "glossary_id": "products.en_GB-de",
    "name": "products",
    "ready": True,
    "source_lang": "en",
    "target_lang": "de",
    "creation_time": "2001-09-09T01:46:40.000Z",
    "entry_count": 1,
}


def glossary(name: str, source: str) -> model_pb2.Glossary:
    facts = {"target_language": "de", "entry_count": 1, "modified_s": 1_000_000_000}
    return model_pb2.Glossary(name=name, source_language=source, **facts)


@pytest.fixture
def glossaries(server: Translator) -> None:
    server.pairs.append(["ko", "de"])
    server.glossaries = [glossary("products", "en_GB"), glossary("drinks", "ko")]


@pytest.mark.usefixtures("glossaries")
async def test_glossaries_are_listed_described_and_read(client: AsyncClient) -> None:
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


@pytest.mark.usefixtures("glossaries")
async def test_glossary_of_a_translation(client: AsyncClient, server: Translator) -> None:
    body = {**TEXTS, "source_lang": "EN", "glossary_id": "products.en_GB-de"}
    answers = [await client.post("/v2/translate", json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert server.listings == 1
    assert {each.options.glossary for each in server.requests} == {"products"}


@pytest.mark.usefixtures("glossaries")
@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"glossary_id": "products.en_GB-de"}, 400, "source_lang: is missing"),
        ({"glossary_id": "none", "source_lang": "EN"}, 404, "glossary_id: 'none' is not"),
        ({"glossary_id": "drinks.ko-de", "source_lang": "EN"}, 400, "glossary_id: is for ko to de"),
        ({"glossary_id": "drinks.ko-de", "source_lang": "KO"}, 400, "glossary_id: is of one pair"),
        ({"glossary_id": "drinks", "source_lang": "EN"}, 400, "glossary_id: is for ko to de"),
        ({"glossary_ids": ["a", "b"]}, 400, "glossary_ids: is not supported"),
    ],
)
async def test_glossary_that_does_not_go_with_a_request(
    client: AsyncClient, fields: dict[str, object], status: int, message: str
) -> None:
    answer = await client.post("/v2/translate", json={**TEXTS, **fields})
    assert answer.status_code == status
    assert answer.json()["message"].startswith(message)


@pytest.mark.usefixtures("glossaries")
async def test_glossaries_are_changed_by_the_operator_alone(client: AsyncClient) -> None:
    path = "/v3/glossaries/products"
    for answer in (
        await client.post("/v2/glossaries", json={"name": "a"}),
        await client.delete("/v2/glossaries/products.en_GB-de"),
        await client.post("/v3/glossaries", json={"name": "a"}),
        await client.patch(path, json={"dictionaries": [TERMS]}),
        await client.put(f"{path}/dictionaries", json=TERMS),
        await client.delete(path),
    ):
        assert answer.status_code == 400
        assert "files of the operator" in answer.json()["message"]


@pytest.mark.usefixtures("glossaries")
async def test_glossaries_of_a_name_are_one(client: AsyncClient, server: Translator) -> None:
    server.glossaries[1].name = "products"
    [listed] = (await client.get("/v3/glossaries")).json()["glossaries"]
    described = (await client.get("/v3/glossaries/products")).json()
    path = "/v3/glossaries/products/entries?target_lang=DE&source_lang="
    entries = [await client.get(f"{path}{code}") for code in ("EN", "JA")]
    pairs = [{"source_lang": code, "target_lang": "de", "entry_count": 1} for code in ("en", "ko")]
    assert listed == described
    assert (described["glossary_id"], described["dictionaries"]) == ("products", pairs)
    [dictionary] = entries[0].json()["dictionaries"]
    assert dictionary == TERMS | {"source_lang": "en", "entries": "a\tb\n"}
    assert entries[1].status_code == 404
    assert "has no dictionary for ja to de" in entries[1].json()["message"]


@pytest.fixture
async def writer(server: Translator, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A client of a gateway that knows the folder of the server's glossaries."""
    (tmp_path / "house.en-de.tsv").write_text("a\tb\n")
    server.glossaries = [glossary("house", "en")]
    gateway = replace(gateway_of(server), glossaries=tmp_path)
    async with opened(gateway, *FORMS, trusted_proxies=["127.0.0.1"]) as client:
        # As behind a proxy that takes a prefix off.
        client.headers["x-forwarded-prefix"] = "/v2/mt"
        yield client


def count(folder: Path) -> int:
    return len([*folder.iterdir()])


async def test_callers_write_and_delete_their_own(writer: AsyncClient, tmp_path: Path) -> None:
    back = {**BACK, "entries": "x,y\n", "entries_format": "csv"}
    # As the SDK for Node sends them.
    form = {
        f"dictionaries[{number}].{name}": value
        for number, each in enumerate((TERMS, back))
        for name, value in each.items()
    }
    made = (await writer.post("/v3/glossaries", data={"name": "Mine: ü", **form})).json()
    path = f"/v3/glossaries/{made['glossary_id']}"
    patch = {"dictionaries": [{**TERMS, "entries": "e\tf"}]}
    patched = (await writer.patch(path, json=patch)).json()
    entries = await writer.get(f"{path}/entries?source_lang=EN&target_lang=DE")
    replaced = await writer.put(f"{path}/dictionaries", json={**TERMS, "entries": "g\th"})
    gone = await writer.delete(f"{path}/dictionaries?source_lang=DE&target_lang=EN")
    listed = (await writer.get("/v3/glossaries")).json()["glossaries"]
    counts = [[each["entry_count"] for each in of["dictionaries"]] for of in (made, patched)]
    assert (made["name"], counts) == ("Mine: ü", [[1, 2], [1, 3]])
    assert entries.json()["dictionaries"][0]["entries"] == "a\tb\n#c\td\ne\tf\n"
    assert replaced.json() == {"source_lang": "en", "target_lang": "de", "entry_count": 1}
    assert gone.status_code == 204
    assert [each["name"] for each in listed] == ["house", "Mine: ü"]
    [file] = set(tmp_path.iterdir()) - {tmp_path / "house.en-de.tsv"}
    assert file.name == f"{made['glossary_id']}.en-de.tsv"
    assert file.read_text() == "g\th\n"
    assert (await writer.delete(path)).status_code == 204
    assert (await writer.get(path)).status_code == 404


async def test_changes_at_once_lose_nothing(writer: AsyncClient) -> None:
    made = (await writer.post("/v3/glossaries", json=BODY)).json()
    path = f"/v3/glossaries/{made['glossary_id']}"
    patches = [{"dictionaries": [{**TERMS, "entries": f"{n}\t{n}"}]} for n in range(8)]
    await asyncio.gather(*(writer.patch(path, json=patch) for patch in patches))
    [dictionary] = (await writer.get(path)).json()["dictionaries"]
    assert dictionary["entry_count"] == 10


async def test_change_waits_for_another_process(writer: AsyncClient, tmp_path: Path) -> None:
    number = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    asked = asyncio.create_task(writer.post("/v3/glossaries", json=BODY))
    assert not (await asyncio.wait([asked], timeout=0.3))[0]
    assert count(tmp_path) == 1
    os.close(number)
    assert (await asked).status_code == 201


async def test_change_that_cannot_be_stored_changes_nothing(
    writer: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> None:
        if path.name.endswith("de-en.tsv"):
            raise OSError(errno.ENOSPC, "No space left on device")
        path.touch()

    monkeypatch.setattr(Path, "write_bytes", write)
    answer = await writer.post("/v3/glossaries", json={**BODY, "dictionaries": [TERMS, BACK]})
    assert answer.status_code == 503
    assert answer.json()["message"] == "glossaries cannot be stored: No space left on device"
    assert count(tmp_path) == 1


@pytest.mark.parametrize(("files", "entries"), [(500, 1), (10, 10_000)])
async def test_full_folder(writer: AsyncClient, tmp_path: Path, files: int, entries: int) -> None:
    for number in range(files):
        (tmp_path / f"{number:016x}.a.en-de.tsv").write_text("a\tb\n" * entries)
    answer = await writer.post("/v3/glossaries", json=BODY)
    assert "there is no room" in answer.json()["message"]
    assert count(tmp_path) == files + 1


async def test_files_that_are_none_are_left_out(writer: AsyncClient, tmp_path: Path) -> None:
    names = [f"{sign * 16}.a.en-de.tsv" for sign in "abc"]
    (tmp_path / names[0]).mkdir()
    os.mkfifo(tmp_path / names[1])
    (tmp_path / names[2]).symlink_to("nowhere")
    (tmp_path / f"{'d' * 16}.-d800--110000-.en-de.tsv").write_bytes(b"\xff\n")
    made = await writer.post("/v3/glossaries", json={"name": "\U00100000", "dictionaries": [TERMS]})
    listed = (await writer.get("/v3/glossaries")).json()["glossaries"]
    assert made.json()["name"] == "\U00100000"
    assert {each["name"] for each in listed} == {"house", "?-110000-", "\U00100000"}


async def test_writing_needs_a_token_of_the_server(
    writer: AsyncClient, server: Translator, tmp_path: Path
) -> None:
    server.has_tokens = True
    answer = await writer.post("/v3/glossaries", json=BODY)
    assert answer.status_code == 403
    assert count(tmp_path) == 1


async def test_glossary_is_not_used_once_it_is_deleted_or_unless_it_is_read(
    writer: AsyncClient, server: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ_S", 0.1)
    made = [(await writer.post("/v2/glossaries", json={"name": "a", **TERMS})).json() for _ in "ab"]
    ids = [each["glossary_id"] for each in made]
    # The server keeps its last glossary, even if the file is gone.
    server.glossaries[0].name = ids[0].removesuffix(".en-de")
    await writer.delete(f"/v2/glossaries/{ids[0]}")
    body = {**TEXTS, "source_lang": "EN"}
    answers = [await writer.post("/v2/translate", json={**body, "glossary_id": id_}) for id_ in ids]
    assert [answer.status_code for answer in answers] == [404, 503]
    assert "the server has not read it" in answers[1].json()["message"]


async def test_glossary_of_v2_is_translated_with_once_the_server_has_it(
    writer: AsyncClient, server: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    made = (await writer.post("/v2/glossaries", json={"name": "new", **TERMS})).json()
    assert (made["name"], made["entry_count"], made["ready"]) == ("new", 2, True)
    name = made["glossary_id"].removesuffix(".en-de")
    body = {**TEXTS, "source_lang": "EN", "glossary_id": name}
    asked = asyncio.create_task(writer.post("/v2/translate", json=body))
    while server.listings < 5:
        await asyncio.sleep(0.01)
    assert not asked.done()
    server.glossaries.append(glossary(name, "en"))
    assert (await asked).status_code == 200
    assert {each.options.glossary for each in server.requests} == {name}
    entries = await writer.get(f"/v2/glossaries/{made['glossary_id']}/entries")
    assert entries.text == "a\tb\n#c\td\n"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": " "}, "name: is empty"),
        ({"name": "x" * 200}, "name: is too long"),
        ({"dictionaries": [1]}, "dictionaries: must be an array of objects"),
        ({"dictionaries": []}, "dictionaries: is missing"),
        ({"dictionaries": [{**TERMS, "entries": ""}]}, "entries: a dictionary has 1 to"),
        ({"dictionaries": [{**TERMS, "source_lang": "../x"}]}, "source_lang: is no code"),
        ({"dictionaries": [{**TERMS, "entries_format": "tbx"}]}, "entries_format: must be one"),
        *(
            ({"dictionaries": [{**TERMS, "entries": entries}]}, f"entries: {fault}")
            for entries, fault in (
                ("a\n", "line 1: has 1 columns"),
                ("a\tb\n\nc\td\te", "line 3: has 3 columns"),
                (f"a\t{'b' * 257}", "line 1: its target has 257 characters"),
                (f"{'a.' * 17}\tb", "line 1: its source has 34 words"),
                (f"{'茶' * 33}\tb", "line 1: its source has 33 words"),
                (f"{'가' * 33}\tb", "line 1: its source has 33 words"),
                ("a\tb\u2028c", "'b\\u2028c' has a control"),
                ("a\tb\n\ufeffc\td", "'\\ufeffc' has a control"),
                ("a\tb\na\tc", "line 2: 'a' has another target"),
            )
        ),
    ],
)
async def test_wrong_glossary_is_not_written(
    writer: AsyncClient, tmp_path: Path, fields: dict[str, Any], field: str
) -> None:
    answer = await writer.post("/v3/glossaries", json=BODY | fields)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(field)
    assert count(tmp_path) == 1


async def test_files_of_the_operator_stay(writer: AsyncClient, tmp_path: Path) -> None:
    path = "/v3/glossaries/house"
    for answer in (
        await writer.delete(path),
        await writer.delete("/v2/glossaries/house.en-de"),
        await writer.put(f"{path}/dictionaries", json=TERMS),
        await writer.patch(path, json={"dictionaries": [TERMS]}),
    ):
        assert answer.status_code == 404
        assert "'house" in answer.json()["message"]
        assert "one of the operator" in answer.json()["message"]
    assert (tmp_path / "house.en-de.tsv").read_text() == "a\tb\n"
