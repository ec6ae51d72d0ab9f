"""Placeholders, addresses, named texts and numbers in real translations: there exactly and once."""

from pathlib import Path

import pytest
from tests.support.process import ServerProcess

from seqserve import Client, Placement, Result, TextWarningKind

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


def check(result: Result, source: str, *kept: str) -> None:
    best = result.hypotheses[0]
    assert [part.text for part in best.kept] == [*kept]
    for part in best.kept:
        assert part.placement in PLACED
        assert source[part.source_begin : part.source_end] == part.text
        assert result.text[part.target_begin : part.target_end] == part.text
    for text in kept:
        assert result.text.count(text) == kept.count(text), result.text


@pytest.mark.parametrize("kind", KINDS)
def test_placeholders_come_back_exactly_and_once(translator: Client, kind: str) -> None:
    text = KINDS[kind]
    # Of a link the words between the brackets are translated.
    kept = text.removeprefix("[Berlin")
    sources = [template.replace("X", text) for template in TEMPLATES[:8]]
    keep = [kept] if kind.endswith("`keep`") else []
    for source, result in zip(sources, translator.generate_batch(sources, keep=keep), strict=True):
        assert isinstance(result, Result)
        check(result, source, kept)


@pytest.mark.parametrize("word", ["李明", "Лев Толстой", "Αθήνα"])
def test_foreign_words_come_back_exactly_and_once(translator: Client, word: str) -> None:
    source = f"My friend {word} lives in Berlin."
    for text in (source, source.upper()):
        result = translator.generate(text)
        check(result, text, word if text == source else word.upper())
        assert "Berlin" in result.text.title() and "\N{REPLACEMENT CHARACTER}" not in result.text
        assert not result.source_warnings


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_text_of_sentences_streams_with_what_it_keeps(translator: Client, beam_size: int) -> None:
    source = "Hello {name}, welcome back! {count}: %s\nThe file a_b.txt of {name} is at https://a.example/b?c=1."
    *pieces, last = translator.stream(source, beam_size=beam_size)
    assert last.result is not None
    kept = ["{name}", "{count}", "%s", "a_b.txt", "{name}", "https://a.example/b?c=1"]
    check(last.result, source, *kept)
    assert "".join(piece.text for piece in pieces) == last.result.text
    assert last.result.text == translator.generate(source, beam_size=beam_size).text
    for segment in last.result.segments:
        text = last.result.text[segment.target_begin : segment.target_end]
        for part in segment.hypotheses[0].kept if segment.hypotheses else ():
            assert text[part.target_begin : part.target_end] == part.text


def test_over_a_pivot_the_places_lead_to_the_source(translator: Client) -> None:
    source = "{name}은 https://a.example/b 를 좋아한다."
    languages = {"source_language": "ko", "target_language": "de"}
    result = translator.generate(source, **languages)  # type: ignore[arg-type]
    check(result, source, "{name}", "https://a.example/b")


def test_a_text_in_capitals_is_answered_as_its_small_letters_are(translator: Client) -> None:
    small = "hello {Name}, where is the street to a.example.com/B? i like apples."
    source = small.upper().replace("{NAME}", "{Name}").replace("A.EXAMPLE.COM", "a.example.com")
    result, plain = translator.generate_batch([source, small], return_alignment=True)
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
    *pieces, last = translator.stream(source)
    assert "".join(piece.text for piece in pieces) == result.text
    assert last.result is not None
    assert translator.generate(source, lower_capitals=False).text != result.text


# It is cut off before its number.
YEAR = "We watched a film in 2019."
CUT = {"max_decoding_length": 2, "segmentation": "none"}


def test_an_answer_that_lacks_a_number_is_told(translator: Client, shipped: ServerProcess) -> None:
    whole, cut = translator.generate(YEAR), translator.generate(YEAR, **CUT)
    assert whole.warnings == () and "2019" in whole.text
    [warning] = cut.warnings
    assert warning.kind is TextWarningKind.NUMBERS_DIFFER
    assert YEAR[warning.source_begin : warning.source_end] == warning.source_text == "2019"
    *_, last = translator.stream(YEAR, **CUT)
    assert last.result and last.result.warnings == cut.warnings
    assert shipped.value("numbers_differ_total", model="en-de") >= 2


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_second_try_never_lacks_more(translator: Client, beam_size: int) -> None:
    sources = [
        "Your order 85642 was shipped on 20 July 2019.",
        "The coach leaves at 9:15 a.m. and arrives at 6 p.m.",
        "Of 1197 members, 59 have paid $1,250.50.",
        "We like this town.",
    ]
    first = translator.generate_batch(sources, beam_size=beam_size)
    second = translator.generate_batch(sources, beam_size=beam_size, verify_numbers=True)
    for once, twice in zip(first, second, strict=True):
        assert len(twice.warnings) <= len(once.warnings)
        assert once.warnings or twice.text == once.text
