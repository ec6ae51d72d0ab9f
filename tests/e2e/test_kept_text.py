"""Placeholders, addresses and named texts in real translations: there exactly and once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seqserve import Client, Placement, Result

from .process import ServerProcess

SENTENCES = Path(__file__).with_name("placeholders.txt").read_text(encoding="utf-8")
TEMPLATES = SENTENCES.splitlines()
KINDS = {
    "printf": "%s",
    "Python": "{name}",
    "ICU": "{0}",
    "Android": "%1$s",
    "i18next": "{{count}}",
    "Mustache": "{{{user.name}}}",
    "tag of XML": '<x id="1"/>',
    "Markdown's link": "[Berlin](https://berlin.example/map)",
    "URL": "https://shop.example.org/a?id=7",
    "mail": "anna.berg@example.org",
    "version": "2.4.1-rc1",
    "unit, by `keep`": "50 MB/s",
    "emoji": "🎉",
    "hashtag": "#WinterSale",
    "code": "`git pull`",
}
PLACED = {Placement.GENERATED, Placement.ALIGNED, Placement.INSERTED}


@pytest.fixture
def client(shipped: ServerProcess) -> Iterator[Client]:
    with Client(shipped.target) as client:
        yield client


def check(result: Result, source: str, *kept: str) -> None:
    """Checks that a text has what its source keeps, and says so."""
    best = result.hypotheses[0]
    assert [part.text for part in best.kept] == [*kept]
    for part in best.kept:
        assert part.placement in PLACED
        assert source[part.source_begin : part.source_end] == part.text
        assert result.text[part.target_begin : part.target_end] == part.text
    for text in kept:
        assert result.text.count(text) == kept.count(text), result.text


@pytest.mark.parametrize("kind", KINDS)
def test_placeholders_come_back_exactly_and_once(client: Client, kind: str) -> None:
    text = KINDS[kind]
    # Of a link the words between the brackets are translated.
    kept = text.removeprefix("[Berlin")
    sources = [template.replace("X", text) for template in TEMPLATES[:8]]
    keep = [kept] if kind.endswith("`keep`") else []
    for source, result in zip(sources, client.generate_batch(sources, keep=keep), strict=True):
        assert isinstance(result, Result)
        check(result, source, kept)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_text_of_several_sentences_streams_with_what_it_keeps(
    client: Client, beam_size: int
) -> None:
    source = "Hello {name}, welcome back! {count}: %s\nThe file a_b.txt of {name} is at https://a.example/b?c=1."
    *pieces, last = client.stream(source, beam_size=beam_size)
    assert last.result is not None
    kept = ["{name}", "{count}", "%s", "a_b.txt", "{name}", "https://a.example/b?c=1"]
    check(last.result, source, *kept)
    assert "".join(piece.text for piece in pieces) == last.result.text
    assert last.result.text == client.generate(source, beam_size=beam_size).text
    for segment in last.result.segments:
        text = last.result.text[segment.target_begin : segment.target_end]
        for part in segment.hypotheses[0].kept if segment.hypotheses else ():
            assert text[part.target_begin : part.target_end] == part.text


def test_over_a_pivot_the_places_lead_to_the_source(client: Client) -> None:
    source = "{name}은 https://a.example/b 를 좋아한다."
    languages = {"source_language": "ko", "target_language": "de"}
    result = client.generate(source, **languages)  # type: ignore[arg-type]
    check(result, source, "{name}", "https://a.example/b")


def test_what_is_nothing_else_stays(client: Client) -> None:
    for source in ("{name}", "https://a.example/b?c=1", "🎉🎉", "%s: %d"):
        assert client.generate(source).text == source


def test_it_can_be_turned_off(client: Client) -> None:
    result = client.generate("Hello {name}, welcome back!", keep_placeholders=False)
    assert result.hypotheses[0].kept == ()


def test_every_alternative_keeps_it(client: Client) -> None:
    result = client.generate("We could not find {{count}}.", beam_size=5, num_hypotheses=5)
    hypotheses = result.hypotheses or result.segments[0].hypotheses
    assert [each.text.count("{{count}}") for each in hypotheses] == [1] * len(hypotheses)


def test_a_text_in_capitals_is_answered_as_its_small_letters_are(client: Client) -> None:
    small = "hello {Name}, where is the street to a.example.com/B? i like apples."
    source = small.upper().replace("{NAME}", "{Name}").replace("A.EXAMPLE.COM", "a.example.com")
    result, plain = client.generate_batch([source, small], return_alignment=True)
    assert isinstance(result, Result)
    assert isinstance(plain, Result)
    check(result, source, "{Name}", "a.example.com/B")
    assert result.text.upper() == plain.text.upper()
    assert result.text.replace("{Name}", "").replace("a.example.com/B", "").isupper()
    assert [segment.hypotheses[0].token_ids for segment in result.segments] == [
        segment.hypotheses[0].token_ids for segment in plain.segments
    ]
    for segment in result.segments:
        text = result.text[segment.target_begin : segment.target_end]
        assert text == segment.hypotheses[0].text
        for link in segment.hypotheses[0].alignment:
            assert text[link.target_begin : link.target_end].strip()
    *pieces, last = client.stream(source)
    assert "".join(piece.text for piece in pieces) == result.text
    assert last.result is not None
    assert client.generate(source, lower_capitals=False).text != result.text
