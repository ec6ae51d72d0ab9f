"""What of a program's JSON is translated. «» stand around it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.attributes import Languages
from seqserve.documents.formats import Format
from seqserve.documents.json_files import parse_arb

from .marking import marked, pairs, passages_of, written


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        '{"key": "«a text»"}',
        '{\r\n\t"a" : {"b":["«c»", 1e400, true]},"b" :"«d»"}\r\n',
        ('["\\u00e4 \\"b\\"\\/"]', '["«ä \\"b\\"/»"]'),
        '["  «a\\n\\n  b» \\n"]',
        '["%s: {0}", "", "12 %"]',
        '"«a»"',
    ),
)
def test_texts_are_translated_and_keys_are_not(text: str, expected: str) -> None:
    assert marked(Format.JSON, text) == expected


def test_what_flutter_says_about_texts_is_no_text() -> None:
    about = '"@@locale": "en", "@a": {"description": "b", "placeholders": {"n": ["c", {"d": "e"}]}}'
    text = f'{{{about}, "a": "{{n}} texts", "@x" : "y","b":"c"}}'
    expected = text.replace("{n} texts", "{n} «texts»").replace('"b":"c"', '"b":"«c»"')
    assert marked(Format.ARB, text) == expected


@pytest.mark.parametrize(
    ("languages", "locale", "expected"),
    [
        (Languages("en", "de"), "en", "de"),
        (Languages("auto", "zh-hant"), "en_US", "zh_Hant"),
        (Languages("en", "de"), "fr", "fr"),
        (Languages(), "en", "en"),
    ],
)
def test_a_file_of_flutter_names_the_language_of_the_translation(
    languages: Languages, locale: str, expected: str
) -> None:
    text = '{"a": "one", "@@locale" : "%s", "b": "two"}'
    passages = [*parse_arb([text % locale], languages=languages)]
    assert [each.text for each in passages if each.has_words] == ["one", "two"]
    assert "".join(each.before + each.source for each in passages) == text % expected


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        "{n, plural, one {# «file»} other {# «files»}}",
        "«You» {n,plural, =0{«won»} other{«lost» {x, number} «games»}}.",
        "{g, select, f {«She» {n, plural, other {«has» #}}} other {«They»}}",
        "«{n, plural, one» {# file} «other»",
        "{n, plural, }",
        "«a # b»",
    ),
)
def test_the_branches_of_a_message_are_texts(text: str, expected: str) -> None:
    assert json.loads(marked(Format.JSON, json.dumps(text))) == expected


VALUES = st.recursive(
    st.text() | st.sampled_from(["a {x} b", "%s of <b>c</b>", "\ud800", "{n, plural, one {a}}"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_any_json_stays_to_the_byte_where_nothing_is_translated(
    value: object, is_ascii: bool, indent: int | str | None
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    passages = passages_of(Format.JSON, text)
    assert json.loads(written(passages)) == value
