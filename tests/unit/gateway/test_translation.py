"""Texts with and without markup through the calls of one request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.gateway.translating import translating

from seqserve.v1 import generation_pb2

PAIR = {"source": "en", "target": "de"}


async def translate(client: Any, q: str | list[str], **more: object) -> Any:
    answer = await client.post("/translate", json={"q": q, **PAIR, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_array_goes_through_the_window_at_low_priority() -> None:
    texts = [f"w{n}" for n in range(30)]
    async with translating("en-de") as (client, server):
        answer = await translate(client, texts)
    assert answer["translatedText"] == [text.upper() for text in texts]
    assert {request.priority for request in server.requests} == {generation_pb2.PRIORITY_LOW}
    assert {request.options.segmentation for request in server.requests} == {"sentences"}


async def test_single_text_is_an_ordinary_call() -> None:
    async with translating("en-de") as (client, server):
        assert (await translate(client, "one. two."))["translatedText"] == "ONE. TWO."
    assert server.requests[0].priority != generation_pb2.PRIORITY_LOW


@pytest.mark.parametrize("text", ["", " \n", "102", "<br/>"])
async def test_text_without_a_letter_costs_no_call(text: str) -> None:
    async with translating("en-de") as (client, server):
        assert (await translate(client, text, format="html"))["translatedText"] == text
        if text != "<br/>":
            assert (await translate(client, text))["translatedText"] == text
    assert server.requests == []


async def test_text_that_is_too_long_for_a_call_goes_in_parts() -> None:
    text = "a word. " * 20_000
    async with translating("en-de") as (client, server):
        assert (await translate(client, text))["translatedText"] == text.upper()
    assert len(server.requests) > 1


async def test_more_than_a_request_may_have_is_refused() -> None:
    async with translating("en-de") as (client, server):
        answer = await client.post("/translate", json={"q": ["a"] * 20_001, **PAIR})
    assert answer.status_code == 413
    assert answer.json()["error"].startswith("there are more than 20,000 passages")
    assert server.requests == []


async def test_markup_follows_its_words() -> None:
    async with translating("en-de") as (client, server):
        answer = await translate(
            client, ["<p>a <b>b</b> c &amp; d</p>", "<p>plain</p>"], format="html"
        )
    assert answer["translatedText"] == ["<p>A <b>B</b> C &amp; D</p>", "<p>PLAIN</p>"]
    aligned = {request.source: request.options.return_alignment for request in server.requests}
    assert aligned == {"a b c & d": True, "plain": False}


async def test_model_without_alignment_translates_between_the_tags() -> None:
    async with translating("en-de") as (client, server):
        server.has_scorer = False
        for count in (1, 2):
            texts = ["<p>a <b>b</b> c</p>"] * count
            answer = await translate(client, texts, format="html")
            assert answer["translatedText"] == ["<p>A <b>B</b> C</p>"] * count
