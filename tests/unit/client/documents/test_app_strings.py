"""What of Android's strings is translated. «» stand around it."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format

from .marking import marked, pairs, passages_of, written


def resources(text: str) -> str:
    return f'<?xml version="1.0"?>\r\n<resources>\n\t<!-- it\'s -->\n  {text}\n</resources>\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        '<string name="a">«one»</string>',
        '<string name="a" translatable="false">one</string>',
        '<string-array translatable="false"><item>one</item></string-array>',
        '<item name="a" type="string">«one»</item><item type="dimen">2dp</item>',
        (
            "<string>\n  one \r\n\ttwo\\nthree  \n</string>",
            "<string>\n  «one two\\nthree»  \n</string>",
        ),
        "<string>@string/other</string><string/>",
        "<style><item>one</item></style><integer>1</integer>",
        "<string>12 %1$s</string>",
        ("<string-array><item>«one»</item><item>«two»</item></string-array><x><item>no</item></x>"),
        '<plurals><item quantity="one">%d «file»</item></plurals>',
        (
            '<string>it\\\'s &lt; \\"x\\u00e4\\"</string>',
            '<string>«it\\\'s &lt; \\"xä\\"»</string>',
        ),
        "<string>«It rains.»<br/>«We go.»</string>",
        ("<string>a \\ud83d\\ude42</string>", "<string>«a 🙂»</string>"),
        '<string>"  «a b» "</string>',
        ('<string>a "b" &quot;c\\"</string>', '<string>«a b c\\"»</string>'),
        "<string><![CDATA[<b>«a»</b> «it\\'s» &amp;]]></string>",
        '<string>«a» <b>«b»</b> <xliff:g id="n">%1$s c</xliff:g> «d» &app; «e\\n»</string>',
    ),
)
def test_strings(text: str, expected: str) -> None:
    text = text.replace("<xliff:g", '<xliff:g xmlns:xliff="urn:x"')
    expected = expected.replace("<xliff:g id", '<xliff:g xmlns:xliff="urn:x" id')
    head = "<!DOCTYPE resources [<!ENTITY app \"a > 'b'\">]>"
    document = head + resources("{}").partition("\r\n")[2]
    assert marked(Format.ANDROID, document.format(text)) == document.format(expected)


def test_a_translation_is_escaped() -> None:
    [(text, expected)] = pairs(resources('<string>«@x y\\\'s \\\\ &amp; \\"z\\"»</string>'))
    assert marked(Format.ANDROID, text) == expected


def test_an_entity_of_a_file_is_not_read() -> None:
    head = "<!DOCTYPE r [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"
    text = f"{head}<resources><string>{{}}</string></resources>"
    assert marked(Format.ANDROID, text.format("b &a; c")) == text.format("«b» &a; «c»")


TEXTS = ["a", "b c", " ", "\n", "&lt;", "&#65;", "&amp;lt;", "\\'", "\\n", "\\u0041"]
TEXTS += ["%s", '"', "é", "<b>x</b>", "<br/>", "<!-- c -->", "<i>", "<![CDATA[d & e]]>"]


@given(st.lists(st.lists(st.sampled_from(TEXTS)).map("".join)))
def test_any_file_stays_to_the_byte_and_is_xml_when_translated(texts: list[str]) -> None:
    strings = [f'<string name="{number}">{text}</string>' for number, text in enumerate(texts)]
    document = resources("".join(strings).replace("<i>", "<i>it</i>"))
    passages = passages_of(Format.ANDROID, document)
    again = passages_of(Format.ANDROID, written(passages))
    # White space collapses, also around a tag and the escape of a line break.
    texts_of = [
        [re.sub(" *([ \n]) *", r"\1", each.text.strip()) for each in there if each.has_words]
        for there in (passages, again)
    ]
    assert texts_of[0] == texts_of[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        '"a" = "«b»";\n',
        '/* "x" = "y"; */\r\nKEY_1="«b»";// "c" = "d";',
        '"a \\"b\\" = c" /* d */ = /* e */ "«f»" ;',
        ('"a" = "\\tb \\"c\\" \\U00e4\\n%1$@ d\\n";', '"a" = "\\t«b \\"c\\" ä\\n»%1$@ «d»\\n";'),
        '"a" = "%#@files@: %d";"b";',
        "/* nothing */",
        "",
    ),
)
def test_values_are_translated(text: str, expected: str) -> None:
    assert marked(Format.STRINGS, text) == expected


PIECES = ["a", "%@", '\\"', "\\n", "\\U0041", "\n", " ", "é", "/*", "//", "<b>x</b>", "="]
STRINGS = st.lists(st.sampled_from(PIECES)).map("".join)
GAPS = st.sampled_from(["", " ", "\n", "/* ; */", '// "x\n'])


@given(st.lists(st.tuples(STRINGS, GAPS, STRINGS, GAPS)))
def test_any_file_stays_as_is_and_is_read_again(entries: list[tuple[str, str, str, str]]) -> None:
    text = "".join(f'"{key}"{gap}={end}"{value}"{gap};{end}' for key, gap, value, end in entries)
    passages = passages_of(Format.STRINGS, text)
    again = passages_of(Format.STRINGS, written(passages))
    read = [
        [(Counter(filter(str.isalnum, each.text)), each.source.count("%@")) for each in found]
        for found in (again, passages)
    ]
    assert read[0] == read[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        "<data name='a'><value> «Hello» {0} «&amp; b»</value><comment>c d</comment></data>",
        "<data name='a.Size' type='System.Drawing.Size, b'><value>c</value></data>",
        "<data name='a' mimetype='application/x'><value>YWI=</value></data>",
        "<data name='&gt;&gt;a.Name'><value>b</value></data>",
        "<data name='a'><value>b</value><comment>{Locked}</comment></data>",
        "<resheader name='version'><value>b</value></resheader>",
        "<metadata name='a'><value>b</value></metadata>",
    ),
)
def test_strings_of_net(text: str, expected: str) -> None:
    assert marked(Format.RESX, f"<root>{text}</root>") == f"<root>{expected}</root>"
