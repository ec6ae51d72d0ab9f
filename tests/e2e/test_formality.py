"""Formality of the shipped model: over gRPC, in streams and texts, over HTTP as DeepL has it."""

from pathlib import Path

import pytest
from recipes import forms
from tests.support.gateway import gateway_of
from tests.support.process import ServerProcess

from seqserve import Client
from seqserve.errors import InvalidArgument

SOURCE = "Could you open your window? I cannot hear you."
ANSWERS = {"less": "du", "more": "Sie"}


@pytest.mark.parametrize("wish", ["less", "more"])
def test_most_answers_have_the_wanted_form(translator: Client, wish: str) -> None:
    path = Path(forms.__file__).with_name("german") / "readers.txt"
    sources = path.read_text(encoding="utf-8").splitlines()[:60]
    results = translator.generate_batch(sources, target_language="de", formality=wish)
    found = [
        forms.form_of(source, result.text) for source, result in zip(sources, results, strict=True)
    ]
    assert found.count(wish) >= 0.9 * len(found)
    assert not {*found} & {*ANSWERS} - {wish}


@pytest.mark.parametrize("wish", ["less", "more"])
def test_a_stream_has_the_form_of_the_answer(translator: Client, wish: str) -> None:
    whole = translator.generate(SOURCE, target_language="de", formality=wish)
    *_, last = translator.stream(SOURCE, target_language="de", formality=wish)
    assert last.result and last.result.text == whole.text
    assert f" {ANSWERS[wish]} " in whole.text


def test_other_languages_are_refused_or_left(translator: Client) -> None:
    plain = translator.generate(SOURCE, target_language="ko")
    preferred = translator.generate(SOURCE, target_language="ko", formality="prefer_less")
    assert preferred.text == plain.text
    with pytest.raises(InvalidArgument, match="formality"):
        translator.generate(SOURCE, target_language="ko", formality="less")


def test_deepl_has_it(shipped: ServerProcess) -> None:
    body = {"text": [SOURCE], "source_lang": "EN", "target_lang": "DE"}
    with gateway_of(shipped.target) as gateway, gateway.client() as client:
        for wish, word in ANSWERS.items():
            answer = client.post("/v2/translate", json={**body, "formality": wish})
            assert f" {word} " in answer.json()["translations"][0]["text"]
        body["target_lang"] = "KO"
        refused = client.post("/v2/translate", json={**body, "formality": "less"})
        assert refused.status_code == 400 and "formality" in refused.json()["message"]
