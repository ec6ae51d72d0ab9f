from typing import Any

import pytest
from httpx import AsyncClient
from tests.unit.client.documents.marking import in_capitals
from tests.unit.gateway.translating import PAIR, Translator

from seqserve.documents.passage import ParseError
from seqserve_gateway.reading import xml

PAIRS = ["en-de"]


async def translate(client: AsyncClient, q: str | list[str], **more: object) -> Any:
    answer = await client.post("/translate", json={"q": q, **PAIR, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("text", ["", " \n", "102", "<br/>"])
async def test_text_without_a_letter(client: AsyncClient, server: Translator, text: str) -> None:
    assert (await translate(client, text, format="html"))["translatedText"] == text
    if text != "<br/>":
        assert (await translate(client, text))["translatedText"] == text
    assert server.requests == []


async def test_too_long_text_goes_in_parts(client: AsyncClient, server: Translator) -> None:
    text = "a word. " * 20_000
    assert (await translate(client, text))["translatedText"] == text.upper()
    assert len(server.requests) > 1


async def test_too_many_passages_are_refused(client: AsyncClient, server: Translator) -> None:
    answer = await client.post("/translate", json={"q": ["a"] * 20_001, **PAIR})
    assert answer.status_code == 413
    assert answer.json()["error"].startswith("there are more than 20,000 passages")
    assert server.requests == []


async def test_markup_follows_its_words(client: AsyncClient, server: Translator) -> None:
    answer = await translate(client, ["<p>a <b>b</b> c &amp; d</p>", "<p>plain</p>"], format="html")
    assert answer["translatedText"] == ["<p>A <b>B</b> C &amp; D</p>", "<p>PLAIN</p>"]
    aligned = {request.source: request.options.return_alignment for request in server.requests}
    assert aligned == {"a b c & d": True, "plain": False}


FRAGMENT = (
    '<p lang="en">See <a title="a &amp; b">this</a> now.</p><a>Home</a> › <a>News</a>'
    '<input placeholder="c"><p lang="fr">d</p>'
)
TRANSLATED = (
    '<p lang="de">SEE <a title="A &amp; B">THIS</a> NOW.</p><a>HOME</a> › <a>NEWS</a>'
    '<input placeholder="C"><p lang="fr">d</p>'
)


@pytest.mark.parametrize("has_scorer", [True, False])
async def test_fragments_have_menus_attributes_and_a_language(
    client: AsyncClient, server: Translator, has_scorer: bool
) -> None:
    server.has_scorer = has_scorer
    answer = await translate(client, [FRAGMENT] * 2, format="html")
    assert answer["translatedText"] == [TRANSLATED] * 2
    assert {"Home", "News", "a & b", "See this now."} <= {each.source for each in server.requests}


async def test_alternatives_have_attributes(client: AsyncClient) -> None:
    body = '<p>a <b title="c">d</b></p><hr title="e">'
    answer = await translate(client, body, format="html", alternatives=2)
    texts = [answer["translatedText"], *answer["alternatives"]]
    assert texts[0] == '<p>A <b title="C">D</b></p><hr title="E">'
    assert all('title="C"' in text and "A <b" in text for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no tags",
        "a <b>c</b> d",
        "<s id='1'>a <x/> b</s> <!-- c --> <?d e?>",
        "a &amp; b &nbsp; <![CDATA[<b>]]> c",
        "<ph>{0}</ph> is <ph>{1}</ph>",
        "<n:a>b</n:a> c",
    ],
)
def test_passages_joined_are_the_text(text: str) -> None:
    passages = list(xml(text, ["ph"]))
    assert "".join(passage.before + passage.source for passage in passages) == text


@pytest.mark.parametrize(
    "text",
    [
        "a < b, <c, </d> and <e>",
        "<ph>{0}</ph> is <ph>{1}</ph",
        "a & b",
        "a</x><x>b",
        *(f"a <b>{begin}</b> d" for begin in ("<!--", "<?", "<!", "<![CDATA[")),
        "<![CDATA[" * 100_000,
        "<!--" * 100_000,
        "<a>" * 100_000,
    ],
)
def test_what_is_no_xml_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match=r"line 1 (is not well-formed XML|has an element)"):
        xml(text)


@pytest.mark.parametrize(
    ("text", "options", "texts"),
    [
        # Elements beside which there is no text are structure, in which there is structure.
        ("<title>My house</title><par>It is <b>big</b>.</par>", {}, ["My house", "It is big."]),
        ("<a><b>one</b> <c>two</c></a>", {}, ["one", "two"]),
        ("see <x><y>one</y> <z>two</z></x>", {}, ["see one two"]),
        ("<t>one</t> <t>two</t>", {"has_outline": False}, ["one two"]),
        ("<t>one</t> <t>two</t>", {"non_splitting": ["t"]}, ["one two"]),
        ("one <t>two</t> three", {"splitting": ["t"]}, ["one", "two", "three"]),
        ("<t>one</t> <t>two</t>", {"has_outline": False, "splitting": "t"}, ["one", "two"]),
        ("one <![CDATA[two]]> three", {}, ["one two three"]),
        ("<t>one</t> <!-- c --><t><![CDATA[two]]></t>", {"non_splitting": "t"}, ["one two"]),
    ],
)
def test_what_divides_a_text(text: str, options: Any, texts: list[str]) -> None:
    assert [each.text for each in xml(text, **options) if each.text] == texts


def test_an_ignored_element_is_kept_whole() -> None:
    source = "<a>Dear <ph>Ms <ph>Ann</ph> Bee</ph>, hello</a>"
    [passage] = [each for each in xml(source, ["ph"]) if each.text]
    assert passage.text == "Dear Ms Ann Bee, hello"
    assert passage.kept == ("Ms Ann Bee",)
    assert in_capitals([*xml(source, ["ph"])]) == source.replace("Dear", "DEAR").replace(
        "hello", "HELLO"
    )
