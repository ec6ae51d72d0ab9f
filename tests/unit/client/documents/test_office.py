"""What of the parts of a .docx or .odt file is translated. «» are around it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format
from seqserve.documents.passage import Link, Translation

from .marking import marked, passages_of
from .test_subtitles import written

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
BOLD = "<w:rPr><w:b/></w:rPr>"


def docx_document(text: str) -> str:
    return f'<?xml version="1.0"?>\r\n<w:document xmlns:w="{W[1:-1]}">{text}</w:document>'


def run(text: str, properties: str = "") -> str:
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def texts_of(source: str) -> list[list[tuple[bool, str]]]:
    """The runs of each paragraph: whether they are bold, and their texts."""
    return [
        [
            (
                each.find(f"{W}rPr") is not None,
                "".join(text.text or "" for text in each.iter(f"{W}t")),
            )
            for each in paragraph.iter(f"{W}r")
            if any(text.text for text in each.iter(f"{W}t"))
        ]
        for paragraph in ElementTree.fromstring(source).iter(f"{W}p")
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<w:p>{}</w:p>".format(run("a b ")), "<w:p>{}</w:p>".format(run("«a b» "))),
        ("<w:p><w:r><w:t>12</w:t></w:r></w:p>", None),
        ("<w:p><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>", None),
        ("<w:p><w:r><w:delText>old</w:delText></w:r></w:p>", None),
        # A tab divides; what is with it in a run is no text of ours.
        (
            f"<w:p>{run('a')}<w:r><w:tab/></w:r>{run('b')}</w:p>",
            f"<w:p>{run('«a»')}<w:r><w:tab/></w:r>{run('«b»')}</w:p>",
        ),
        # Runs of one format are one text.
        (
            f"<w:p>{run('a ')}<w:proofErr/>{run('b &amp; c')}</w:p>",
            f"<w:p>{run('«a b &amp; c»')}</w:p>",
        ),
        (
            f"<w:p>{run('a ')}{run('b', BOLD)}</w:p>",
            f"<w:p>{run('«a» ')}{run('«b»', BOLD)}</w:p>",
        ),
    ],
)
def test_runs_of_text(text: str, expected: str | None) -> None:
    assert marked(Format.DOCX, docx_document(text)) == docx_document(
        text if expected is None else expected
    )


def test_a_run_of_another_format_follows_its_words() -> None:
    text = docx_document(f"<w:p>{run('a ')}{run('red car', BOLD)}{run(' came.')}</w:p>")
    [passage] = [each for each in passages_of(Format.DOCX, text) if each.has_words]
    assert passage.text == "a red car came."
    links = (Link(10, 14, 0, 3), Link(0, 1, 4, 7), Link(2, 5, 8, 13), Link(6, 9, 14, 18))
    target = passage.written(Translation("kam ein rotes Auto", links))
    result = passage.before + target + text[len(passage.before) + len(passage.source) :]
    assert texts_of(result) == [[(False, "kam ein "), (True, "rotes Auto")]]


DOCX_PARTS = ["a", "b c", " ", "&lt;", "é", "12"]
RUNS = st.builds(
    run, st.lists(st.sampled_from(DOCX_PARTS)).map(" ".join), st.sampled_from(["", BOLD])
) | st.sampled_from(["<w:r><w:br/></w:r>", '<w:bookmarkStart w:id="1"/>', "<w:proofErr/>", "\n"])


@given(st.lists(st.lists(RUNS)))
def test_any_part_stays_to_the_byte_and_is_xml_with_all_words_when_translated(
    paragraphs: list[list[str]],
) -> None:
    text = docx_document("".join(f"<w:p>{''.join(runs)}</w:p>" for runs in paragraphs))
    passages = passages_of(Format.DOCX, text)
    assert "".join(each.before + each.source for each in passages) == text
    before, after = (
        ["".join(text for _, text in runs) for runs in texts_of(source)]
        for source in (text, written(passages))
    )
    assert [re.sub(r"\s+", "", each) for each in after] == [
        re.sub(r"\s+", "", each) for each in before
    ]


def odt_document(text: str) -> str:
    return f'<o:text xmlns:o="urn:o" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0">\n{text}\r\n</o:text>'


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
    assert marked(Format.ODT, odt_document(text)) == odt_document(expected)


ODT_PARTS = [
    "a",
    "b c",
    " ",
    "&lt;",
    "é",
    "12",
    "<text:s/>",
    "<text:span>d e</text:span>",
    "<text:x/>",
]
ODT_PARTS += ["<text:note><text:p>n</text:p></text:note>", '<text:a x="1">f <o:img/></text:a>']


@given(st.lists(st.lists(st.sampled_from(ODT_PARTS)).map("".join)))
def test_any_part_stays_to_the_byte_and_is_xml_when_translated(texts: list[str]) -> None:
    text = odt_document("".join(f"<text:p>{each}</text:p>" for each in texts))
    passages = passages_of(Format.ODT, text)
    assert "".join(each.before + each.source for each in passages) == text
    before, after = (ElementTree.fromstring(each) for each in (text, written(passages)))
    assert sorted(each.tag for each in after.iter()) == sorted(each.tag for each in before.iter())
    assert sorted("".join("".join(after.itertext()).split())) == sorted(
        "".join("".join(before.itertext()).split())
    )
