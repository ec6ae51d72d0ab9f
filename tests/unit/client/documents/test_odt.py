"""What of the parts of an .odt file is translated. «» stand around it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format

from .marking import marked, passages_of
from .test_subtitles import written


def document(text: str) -> str:
    return f'<o:text xmlns:o="urn:o" xmlns:text="urn:t">\n{text}\r\n</o:text>'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<text:p>a\n b</text:p>", "<text:p>«a b»</text:p>"),
        ("<text:h>a &lt; 1</text:h>x", "<text:h>«a &lt; 1»</text:h>x"),
        (
            "<text:p>a <text:span>b</text:span><text:s/>c</text:p>",
            "<text:p>«a» <text:span>«b»</text:span><text:s/>«c»</text:p>",
        ),
        (
            "<text:p>a<text:line-break/>b<text:note><text:citation>1x</text:citation>"
            "<text:p>c</text:p></text:note>d</text:p>",
            "<text:p>«a»<text:line-break/>«b»<text:note><text:citation>1x</text:citation>"
            "<text:p>«c»</text:p></text:note>«d»</text:p>",
        ),
        ("<text:p/><o:p>a</o:p>", "<text:p/><o:p>a</o:p>"),
    ],
)
def test_paragraphs(text: str, expected: str) -> None:
    assert marked(Format.ODT, document(text)) == document(expected)


PARTS = ["a", "b c", " ", "&lt;", "é", "12", "<text:s/>", "<text:span>d e</text:span>", "<text:x/>"]
PARTS += ["<text:note><text:p>n</text:p></text:note>", '<text:a x="1">f <o:img/></text:a>']


@given(st.lists(st.lists(st.sampled_from(PARTS)).map("".join)))
def test_any_part_stays_to_the_byte_and_is_xml_when_translated(texts: list[str]) -> None:
    text = document("".join(f"<text:p>{each}</text:p>" for each in texts))
    passages = passages_of(Format.ODT, text)
    assert "".join(each.before + each.source for each in passages) == text
    before, after = (ElementTree.fromstring(each) for each in (text, written(passages)))
    assert sorted(each.tag for each in after.iter()) == sorted(each.tag for each in before.iter())
    assert sorted("".join("".join(after.itertext()).split())) == sorted(
        "".join("".join(before.itertext()).split())
    )
