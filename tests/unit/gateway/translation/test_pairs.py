"""Pairs of languages and the models that translate them."""

from __future__ import annotations

import pytest
from tests.unit.gateway.translating import translating

from seqserve.v1 import model_pb2
from seqserve_gateway.failure import Failure
from seqserve_gateway.translation.pairs import Pair, Pairs

NAMES = ("source", "target")


def pairs(*codes: str) -> Pairs:
    return Pairs(
        [
            Pair(source=source, target=target, options={"model": f"{source}-{target}"})
            for source, _, target in (code.partition("-") for code in codes)
        ]
    )


@pytest.mark.parametrize(
    ("source", "target"), [("en", "de"), ("EN", "DE"), ("en-US", "de_AT"), ("auto", "de")]
)
def test_codes_may_differ_in_region_and_capitals(source: str, target: str) -> None:
    found = pairs("en-de", "de-fr").find(source, target, NAMES)
    assert found.options["model"] == "en-de"


def test_code_with_a_script_that_a_model_has_is_taken_as_it_is() -> None:
    there = Pairs([Pair(source="en", target=code, options={}) for code in ("zh", "zh-Hant")])
    assert there.find("en", "zh-hant", NAMES).target == "zh-Hant"
    assert there.find("en", "zh-Hans", NAMES).target == "zh"


@pytest.mark.parametrize(
    ("source", "target", "field", "there"),
    [
        ("en", "xx", "target", "de, fr"),
        ("xx", "de", "source", "en"),
        ("fr", "de", "source", "en"),
        ("auto", "xx", "target", "de, fr"),
    ],
)
def test_refusal_lists_what_is_there(source: str, target: str, field: str, there: str) -> None:
    with pytest.raises(Failure) as refused:
        pairs("en-de", "de-fr").find(source, target, NAMES)
    assert (refused.value.field, refused.value.status) == (field, 400)
    assert there in refused.value.details


def test_source_that_nobody_can_tell_is_refused() -> None:
    with pytest.raises(Failure, match="en, fr"):
        pairs("en-de", "fr-de").find("auto", "de", NAMES)
    with pytest.raises(Failure, match="en, fr"):
        pairs("en-de", "fr-de").detected()
    assert pairs("en-de", "en-fr").detected() == "en"


def test_language_is_its_own_translation() -> None:
    own = pairs("en-de").find("de-AT", "de", NAMES)
    assert own.source == own.target == "de"


async def test_model_that_declares_no_languages_may_be_named_for_them() -> None:
    async with translating("en-de fr") as (client, server):
        ready = model_pb2.MODEL_STATE_READY
        server.models += [
            model_pb2.Model(name="ko-en", state=ready),
            model_pb2.Model(name="ja-en", state=model_pb2.MODEL_STATE_FAILED),
            model_pb2.Model(name="my-own-model", state=ready),
        ]
        listed = (await client.get("/languages")).json()
        await client.post("/translate", data={"q": "x", "source": "ko", "target": "en"})
    assert {each["code"]: each["targets"] for each in listed} == {"en": ["de", "fr"], "ko": ["en"]}
    assert server.requests[-1].model == "ko-en"
    assert not server.requests[-1].options.HasField("source_language")


async def test_declared_languages_go_with_the_call() -> None:
    async with translating("en-de fr") as (client, server):
        await client.post("/translate", data={"q": "x", "source": "en", "target": "fr"})
    [request] = server.requests
    assert request.model == "model of en-de fr"
    assert (request.options.source_language, request.options.target_language) == ("en", "fr")


async def test_models_are_not_listed_again_for_every_text_of_a_caller() -> None:
    async with translating("en-de") as (client, server):
        form = {"q": "x", "source": "en", "target": "de"}
        for key in ("a", "a", "b"):
            await client.post("/translate", data={**form, "api_key": key})
    assert len(server.requests) == 3
    assert len(server.metadata) - len(server.requests) == 2
