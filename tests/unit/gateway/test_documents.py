import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from tests.clock import Clock
from tests.unit.gateway.translating import Translator
from tests.unit.gateway.without_socket import Reader, client_of, gateway_of

from seqserve_gateway.app import app_of
from seqserve_gateway.deepl import FORM
from seqserve_gateway.documents import Documents
from seqserve_gateway.endpoint import Gateway
from seqserve_gateway.failure import Failure
from seqserve_gateway.fields import File

ENGLISH = {"source_lang": "EN", "target_lang": "DE"}
FILM = b"1\n00:00:01,000 --> 00:00:02,000\ngood morning\n"


@dataclass
class Desk:
    """A gateway; its answers are read before their requests have ended."""

    server: Translator
    gateway: Gateway
    app: Starlette
    client: httpx.AsyncClient
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def upload(
        self, content: bytes, name: str = "a.txt", fields: dict[str, str] | None = None
    ) -> httpx.Response:
        path, files = "/v2/document", {"file": (name, content)}
        request = self.client.build_request("POST", path, data=fields or ENGLISH, files=files)
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        reader = Reader(path, request.read(), headers=headers)
        self.tasks.append(asyncio.create_task(reader.visit(self.app)))
        await reader.gone.wait()
        return httpx.Response(reader.status, headers=reader.answer_headers, content=reader.sent)

    async def ended(self) -> None:
        await asyncio.gather(*self.tasks)

    async def status(self, handle: dict[str, str]) -> dict[str, Any]:
        path = f"/v2/document/{handle['document_id']}"
        answer = await self.client.post(path, json={"document_key": handle["document_key"]})
        assert answer.status_code == 200
        facts: dict[str, Any] = answer.json()
        return facts

    async def result(self, handle: dict[str, str], **wrong: str) -> httpx.Response:
        handle = handle | wrong
        path = f"/v2/document/{handle['document_id']}/result"
        return await self.client.post(path, json={"document_key": handle["document_key"]})

    async def until(self, state: str, handle: dict[str, str]) -> None:
        while (await self.status(handle))["status"] != state:
            await asyncio.sleep(0.01)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    server = Translator("en-de")
    gateway = gateway_of(server)
    app = app_of(gateway, [FORM])
    async with client_of(app) as client:
        yield Desk(server, gateway, app, client)
    server.stop()


async def test_document_is_translated_after_the_answer_and_fetched_once(desk: Desk) -> None:
    answer = await desk.upload(FILM, "my film.srt")
    handle = answer.json()
    await desk.ended()
    status = await desk.status(handle)
    results = [await desk.result(handle) for _ in range(2)]
    assert status == {
        "document_id": handle["document_id"],
        "status": "done",
        "billed_characters": len("good morning"),
    }
    assert results[0].content == FILM.replace(b"good morning", b"GOOD MORNING")
    assert "my%20film_DE.srt" in results[0].headers["content-disposition"]
    assert '"translated": 1' in results[0].headers["x-translation-report"]
    assert results[1].status_code == 404


async def test_document_under_way_has_a_place_and_cannot_be_fetched(desk: Desk) -> None:
    handle = (await desk.upload(b"hang on")).json()
    await desk.until("translating", handle)
    assert desk.gateway.admission.in_progress == 1
    early = await desk.result(handle)
    desk.server.cancelled.set()
    await desk.ended()
    assert (await desk.result(handle)).content == b"HANG ON"
    assert (early.status_code, early.headers["retry-after"]) == (503, "1")
    metrics = desk.gateway.metrics.text().decode()
    counted = 'seqserve_http_requests_total{code="OK",form="deepl",path="/v2/document"} 1.0'
    assert counted in metrics


async def test_drain_ends_a_document_and_its_calls(desk: Desk) -> None:
    handle = (await desk.upload(b"hang on")).json()
    await desk.until("translating", handle)
    desk.gateway.admission.close()
    await desk.ended()
    assert desk.gateway.admission.in_progress == 0
    facts = desk.app.state.documents.status(handle["document_id"], handle["document_key"])
    assert facts["status"] == "error"
    assert "send it again" in facts["error_message"]
    assert 'code="UNAVAILABLE",form="deepl",path="/v2/document"' in (
        desk.gateway.metrics.text().decode()
    )


@pytest.mark.parametrize(
    ("content", "name", "target", "reason"),
    [
        (b"fail INTERNAL", "a.txt", "DE", "internal, says the fake"),
        (b"good", "a.txt", "JA", "target_lang: no model knows 'ja'"),
        (b"PK no", "a.docx", "DE", "file: "),
        (rb'{"a": "good \ud800"}', "a.json", "DE", "file: line 1 has half a character after 5"),
    ],
)
async def test_status_tells_why_a_document_is_not_translated(
    desk: Desk, content: bytes, name: str, target: str, reason: str
) -> None:
    handle = (await desk.upload(content, name, {**ENGLISH, "target_lang": target})).json()
    await desk.ended()
    status = await desk.status(handle)
    result = await desk.result(handle)
    assert status["status"] == "error"
    assert reason in status["error_message"]
    assert result.status_code == 404
    assert status["error_message"] in result.json()["message"]


async def test_a_file_whose_picture_is_damaged_is_not_translated(desk: Desk) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("word/document.xml", "<w:p><w:t>Good day.</w:t></w:p>")
        archive.writestr("word/media/a.png", b"picture")
    damaged = packed.getvalue().replace(b"picture", b"Picture")
    handle = (await desk.upload(damaged, "a.docx", ENGLISH)).json()
    await desk.ended()
    status = await desk.status(handle)
    assert "word/media/a.png: is not a readable archive" in status["error_message"]
    assert not desk.server.requests


@pytest.mark.parametrize(
    ("fields", "name", "field"),
    [
        ({}, "a.pdf", "file"),
        ({"filename": "a.pdf"}, "a.txt", "file"),
        ({"output_format": "docx"}, "a.txt", "output_format"),
        ({"formality": "loud"}, "a.txt", "formality"),
        ({"glossary_id": "none.en-de"}, "a.txt", "glossary_id"),
        ({"target_lang": ""}, "a.txt", "target_lang"),
    ],
)
async def test_wrong_field(desk: Desk, fields: dict[str, str], name: str, field: str) -> None:
    answer = await desk.upload(b"good", name, ENGLISH | fields)
    assert answer.status_code in (400, 404)
    assert answer.json()["message"].startswith(f"{field}: ")
    assert not desk.server.requests


async def test_unknown_token_is_refused_at_once(desk: Desk) -> None:
    desk.server.has_tokens = True
    assert (await desk.upload(b"good")).status_code == 403


async def test_only_the_key_of_a_document_opens_it(desk: Desk) -> None:
    handle = (await desk.upload(b"good")).json()
    await desk.ended()
    other = (await desk.upload(b"good")).json()
    await desk.ended()
    wrong = [
        await desk.result(handle, document_key=other["document_key"]),
        await desk.result(handle, document_key=""),
        await desk.result(handle, document_id="0"),
        await desk.client.get(f"/download_file/{handle['document_id']}/a.txt"),
    ]
    path = f"/v2/document/{handle['document_id']}"
    missing = await desk.client.get(path)
    params = {"document_key": handle["document_key"]}
    asked = await desk.client.get(path, params=params)
    assert [each.status_code for each in wrong] == [404] * 4
    assert missing.status_code == 400
    assert asked.json()["status"] == "done"


async def test_a_caller_may_have_some_documents_wait(desk: Desk) -> None:
    answers = [await desk.upload(b"hang on") for _ in range(20)]
    states = [await desk.status(answer.json()) for answer in answers[:19]]
    desk.server.cancelled.set()
    await desk.ended()
    assert [each.status_code for each in answers] == [200] * 19 + [429]
    assert [each["status"] for each in states].count("queued") == 16


async def test_other_processes_know_a_document_and_the_time_it_takes(tmp_path: Path) -> None:
    clock = Clock()
    with (
        closing(Documents(tmp_path, clock=clock)) as mine,
        closing(Documents(tmp_path, clock=clock)) as other,
    ):
        own: dict[str, Any] = {"key": "k", "size": 100, "until_s": clock.now_s + 60.0}
        mine._added("a", state="done", took_s=10.0, **own)
        mine._added("b", state="translating", begun_s=clock.now_s - 4.0, **own)
        assert other.status("b", "k")["seconds_remaining"] == 6
        clock.now_s += 61.0
        lost = other.status("b", "k")
    assert lost["status"] == "error"
    assert "send it again" in lost["error_message"]


def test_file_is_there_until_it_is_old() -> None:
    clock = Clock()
    with closing(Documents(kept_s=10.0, clock=clock)) as documents:
        key = documents.add(File("a.txt", b"a"))
        clock.now_s += 10.0
        assert documents.get(key).content == b"a"
        clock.now_s += 0.1
        with pytest.raises(Failure) as refused:
            documents.get(key)
    assert refused.value.status == 404


def test_oldest_file_makes_room_among_those_of_all_processes(tmp_path: Path) -> None:
    with (
        closing(Documents(tmp_path, max_bytes=2 * 1005)) as mine,
        closing(Documents(tmp_path, max_bytes=2 * 1005)) as other,
    ):
        keys = [each.add(File(f"{n}", b"12345")) for n, each in enumerate((mine, other, mine))]
        assert len(set(keys)) == 3
        for each in (mine, other):
            with pytest.raises(Failure):
                each.get(keys[0])
            assert [each.get(key).name for key in keys[1:]] == ["1", "2"]


def test_file_for_which_the_system_has_no_room_is_refused(tmp_path: Path) -> None:
    with closing(Documents(tmp_path)) as documents:
        documents._rows.execute("PRAGMA max_page_count = 10")
        with pytest.raises(Failure) as refused:
            documents.add(File("a.txt", b"a" * 100_000))
    assert refused.value.status == 503
