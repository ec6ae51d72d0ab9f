"""XML: tags stay, and what is said between them is a text."""

from __future__ import annotations

import pytest

from seqserve_gateway.translation import xml


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no tags",
        "a <b>c</b> d",
        "<s id='1'>a <x/> b</s> <!-- c --> <?d e?>",
        "a &amp; b <![CDATA[<b>]]> c",
        "a < b, <c, </d> and <e>",
        "<ph>{0}</ph> is <ph>{1}</ph",
        *(f"a <b>{begin}</b> d" for begin in ("<!--", "<?", "<!", "<![CDATA[")),
        "<![CDATA[" * 100_000,
        "<!--" * 100_000,
    ],
)
def test_passages_joined_are_the_text(text: str) -> None:
    passages = list(xml(text, ["ph"]))
    assert "".join(passage.before + passage.source for passage in passages) == text


def test_tag_within_a_sentence_does_not_divide_it() -> None:
    texts = [
        passage.text for passage in xml("The <x>old</x> house &amp; <y/> barn") if passage.text
    ]
    assert texts == ["The old house & barn"]


def test_ignored_element_is_no_text() -> None:
    passages = [p for p in xml("Dear <ph>NAME <b>x</b></ph>, hello", ["ph"]) if p.text]
    assert "NAME" not in passages[0].text
    assert "<ph>NAME <b>x</b></ph>" in passages[0].source


def test_data_divides_and_stays() -> None:
    texts = [passage.text for passage in xml("one <![CDATA[two]]> three") if passage.text]
    assert texts == ["one", "three"]
