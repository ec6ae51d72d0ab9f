"""Which targets of XLIFF are made. «» stand around their texts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.attributes import Languages
from seqserve.documents.formats import Format, parser_of

from .marking import capital_pairs, in_capitals, marked, passages_of, sent, written

OLD = '<?xml version="1.0"?>\r\n<xliff version="1.2"><file><body>{}</body></file></xliff>\n'
NEW = '<x:xliff xmlns:x="urn:x" version="2.1"><x:file>{}</x:file></x:xliff>'
REVIEW = '<target state="needs-review-translation">'


@pytest.mark.parametrize(
    ("attribute", "text"),
    [('datatype="html"', "a b"), ('original="ng2.template"', "a b"), ('id="html"', "a\n  b")],
)
def test_line_ends_in_texts_of_pages_are_spaces(attribute: str, text: str) -> None:
    unit = "<source>\n  a\n  b\n</source>"
    for opening in (f"<file {attribute}><trans-unit>", f"<file><trans-unit {attribute}>"):
        document = f"<xliff>{opening}{unit}</trans-unit></file></xliff>"
        assert sent(passages_of(Format.XLIFF, document)) == [text]
        assert f">\n  «{text}»\n</target>" in marked(Format.XLIFF, document)


def with_targets(*units: str | tuple[str, str]) -> list[tuple[str, str]]:
    """Each unit before and after; where only targets are added, the unit with them is given."""
    return [
        each if isinstance(each, tuple) else (re.sub(f"\\s*{REVIEW}.*?</target>", "", each), each)
        for each in units
    ]


@pytest.mark.parametrize(
    ("unit", "expected"),
    with_targets(
        f"<source>a</source>{REVIEW}«a»</target>",
        f"\n\t<source>a</source>\n\t{REVIEW}«a»</target>\n",
        ("<source>a</source><target/>", f"<source>a</source>{REVIEW}«a»</target>"),
        (
            '<source>a</source><target id="1" state="new"> </target><note>n</note>',
            '<source>a</source><target id="1" state="needs-review-translation">«a»</target>'
            "<note>n</note>",
        ),
        "<source>a</source><target>b</target>",
        "<source>a</source><target state='final'></target>",
        "<source>12 %s</source>",
        "<source/>",
        "<note>a</note>",
        f"<source>a b</source><seg-source><mrk>a</mrk></seg-source>{REVIEW}«a b»</target>"
        "<alt-trans><source>x</source><target>y</target></alt-trans>",
        '<source>a. b</source><seg-source><mrk mid="1">a.</mrk> <mrk mid="2">b</mrk>'
        f'</seg-source>{REVIEW}<mrk mid="1">«a.»</mrk> <mrk mid="2">«b»</mrk></target>',
        '<source>a<x id="1"/> &amp; <bpt id="2">&lt;b></bpt>b<ept id="2"/></source>'
        f'{REVIEW}«a»<x id="1"/> &amp; <bpt id="2">&lt;b></bpt>«b»<ept id="2"/></target>',
        '<source>a <g id="1">b</g> <ph id="2">code</ph> {n}</source>'
        f'{REVIEW}«a» <g id="1">«b»</g> <ph id="2">code</ph> {{n}}</target>',
    ),
)
def test_version_1_2(unit: str, expected: str) -> None:
    document = OLD.replace("{}", '<trans-unit id="u">{}</trans-unit>')
    assert marked(Format.XLIFF, document.replace("{}", unit)) == document.replace("{}", expected)


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        (
            "<x:segment><x:source>a</x:source></x:segment>",
            '<x:segment state="translated"><x:source>a</x:source><x:target>«a»</x:target>'
            "</x:segment>",
        ),
        (
            '<x:segment state="initial" id="1">\n <x:source>a <x:pc id="1">b</x:pc></x:source>\n'
            "</x:segment><x:ignorable><x:source>c</x:source></x:ignorable>",
            '<x:segment state="translated" id="1">\n <x:source>a <x:pc id="1">b</x:pc></x:source>'
            '\n <x:target>«a» <x:pc id="1">«b»</x:pc></x:target>\n</x:segment>'
            "<x:ignorable><x:source>c</x:source></x:ignorable>",
        ),
        (
            '<x:segment><x:source>a <x:mrk translate="no">B c</x:mrk></x:source></x:segment>',
            '<x:segment state="translated"><x:source>a <x:mrk translate="no">B c</x:mrk></x:source>'
            '<x:target>«a» <x:mrk translate="no">B c</x:mrk></x:target></x:segment>',
        ),
        ("<x:segment><x:source>a</x:source><x:target>b</x:target></x:segment>", None),
    ],
)
def test_version_2(segment: str, expected: str | None) -> None:
    document = NEW.format("<x:unit id='u'>{}</x:unit>")
    assert marked(Format.XLIFF, document.format(segment)) == document.format(expected or segment)


PAIRS = [
    ('<x id="START_LINK" ctype="x-a"/>', '<x id="CLOSE_LINK"/>'),
    ('<x id="START_LINK_1"/>', '<x id="CLOSE_LINK"/>'),
    ('<bpt id="1">&lt;a></bpt>', '<ept id="1">&lt;/a></ept>'),
    ('<bpt id="1" rid="2"/>', '<ept id="3" rid="2"/>'),
    ('<sc id="1"/>', '<ec startRef="1"/>'),
    ('<bx id="1"/>', '<ex id="1"/>'),
    ('<it id="1" pos="open"/>', '<it id="1" pos="close"/>'),
    ("%1$s", "%2$s"),
    ("{start}", "{end}"),
    ('<g id="1">', "</g>"),
]
"""A pair is an element, whatever it is written with."""
A_AND_B = '<x id="START_A"/>«a» <x id="START_B"/>«b»<x id="CLOSE_B"/><x id="CLOSE_A"/> «c»'


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        *((f"«go» {begin}«here»{end}, «now»", "go here, now") for begin, end in PAIRS),
        (A_AND_B, "a b c"),
        # A half alone stands for a word.
        ('«a» <bpt id="1"/> «b»', "a {0} b"),
        ('«a» <ec startRef="1"/>, «b»', "a {0}, b"),
        ('«Hello» <x id="1"/>, «good day.»', "Hello {0}, good day."),
        ('«the» <mrk translate="no">New Bee</mrk>', "the New Bee"),
        # The server keeps a word where it is a word.
        ('«the» <mrk translate="no">Bee</mrk>«s»', "the {0}s"),
        ('«on»<mrk translate="no">Bee</mrk> «day»', "on{0} day"),
        ("<![CDATA[«go» <b>«here»</b> & «now»]]>", "go here & now"),
        ("«a» <!-- c -->«b»", "a b"),
    ],
)
def test_what_is_within_a_source(text: str, reads: str) -> None:
    begin, end = OLD.split("{}")
    [(source, expected)] = capital_pairs(text)
    unit = f"{begin}<trans-unit><source>{source}</source>"
    passages = passages_of(Format.XLIFF, f"{unit}</trans-unit>{end}")
    assert sent(passages) == [reads]
    assert in_capitals(passages) == f"{unit}{REVIEW}{expected}</target></trans-unit>{end}"


def test_a_character_of_cdata_is_a_text() -> None:
    unit = "<trans-unit><source>a <![CDATA[<]]> b</source></trans-unit>"
    assert sent(passages_of(Format.XLIFF, OLD.format(unit))) == ["a < b"]


@pytest.mark.parametrize(
    ("opening", "attribute"),
    [
        ('<xliff version="2.0" srcLang="en"{}><file id="1">', "trgLang"),
        ('<xliff version="1.2"><file source-language="en"{}>', "target-language"),
    ],
)
def test_a_document_names_the_language_of_its_targets(opening: str, attribute: str) -> None:
    parse = parser_of(Format.XLIFF, languages=Languages("en", "de-at"))
    for before, after in (("", "de-AT"), ("fr", "fr")):
        told = [f' {attribute}="{code}"' if code else "" for code in (before, after)]
        text, expected = (f"{opening.format(each)} </file></xliff>" for each in told)
        assert "".join(each.before for each in parse([text])) == expected


def test_what_is_not_to_be_translated_stays() -> None:
    unit = "<trans-unit{}><source>a</source></trans-unit>"
    made = f'<trans-unit translate="yes"><source>a</source>{REVIEW}«a»</target></trans-unit>'
    group = '<group translate="no">{}</group>{}'
    document = OLD.format(group.format(unit.format(""), unit.format(' translate="no"')))
    assert marked(Format.XLIFF, document) == document
    within = OLD.format(group.format(unit.format(' translate="yes"'), ""))
    assert marked(Format.XLIFF, within) == OLD.format(group.format(made, ""))


def test_a_message_of_icu_is_reported_and_stays() -> None:
    unit = "<trans-unit>\n<source>{n, plural, one {a} other {b}}</source></trans-unit>"
    document = OLD.replace("{}", unit)
    passages = passages_of(Format.XLIFF, document)
    assert [each.line for each in passages if "ICU" in each.fault] == [2]
    assert marked(Format.XLIFF, document) == document


PARTS = ["a", "b c", " ", "&lt;", '<g id="1">d</g>', '<x id="2"/>', "%s", '<g id="3"/>', "\n"]
UNITS = st.tuples(st.lists(st.sampled_from(PARTS)).map("".join), st.sampled_from(["", "<target/>"]))


@given(st.lists(UNITS), st.booleans())
def test_any_file_stays_to_the_byte_and_needs_nothing_more_when_translated(
    units: list[tuple[str, str]], is_new: bool
) -> None:
    outer = "<unit><segment>{}</segment></unit>" if is_new else "<trans-unit>{}</trans-unit>"
    texts = [outer.format(f"<source>{source}</source>{target}") for source, target in units]
    document = OLD.format("\n".join(texts))
    passages = passages_of(Format.XLIFF, document)
    result = written(passages)
    assert not any(each.has_words for each in passages_of(Format.XLIFF, result))
    for source, _ in units:
        if re.search("[abcd]", re.sub("<.*?>|&lt;|%s", "", source)):
            assert result.count('<x id="2"/>') >= 2 * source.count('<x id="2"/>')
