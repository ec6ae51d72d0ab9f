"""What of the parts of a .docx or .odt file is translated. «» are around it."""

import re
from dataclasses import replace
from random import Random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format
from seqserve.documents.passage import Link, Translation

from .marking import (
    capital_pairs,
    in_capitals,
    marked,
    pairs,
    passages_of,
    sent,
    shuffled,
    written,
)

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
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
    pairs(
        f"<w:p>{run('«a b» ')}</w:p>",
        "<w:p><w:r><w:t>12</w:t></w:r></w:p>",
        "<w:p><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>",
        "<w:p><w:r><w:delText>old</w:delText></w:r></w:p>",
        # A tab divides; what is with it in a run is not text of ours.
        f"<w:p>{run('«a»')}<w:r><w:tab/></w:r>{run('«b»')}</w:p>",
        # Runs of one format are one text.
        (
            f"<w:p>{run('a ')}<w:proofErr/>{run('b &amp; c')}</w:p>",
            f"<w:p>{run('«a b &amp; c»')}</w:p>",
        ),
        f"<w:p>{run('«a» ')}{run('«b»', BOLD)}</w:p>",
    ),
)
def test_runs_of_text(text: str, expected: str) -> None:
    assert marked(Format.DOCX, docx_document(text)) == docx_document(expected)


@pytest.mark.parametrize("inner", ["<v:box><w:p>{}</w:p></v:box>", "<v:mark/>"])
def test_a_divided_run_declares_the_prefixes_of_its_parts(inner: str) -> None:
    inner = inner.format(run("b"))
    text = f'<w:p><w:r xmlns:v="urn:v"><w:t>a </w:t>{inner}<w:t>c</w:t></w:r></w:p>'
    result = ElementTree.fromstring(marked(Format.DOCX, docx_document(text)))
    assert [each.tag for each in result.iter() if each.tag.startswith("{urn:v}")]
    assert "«" in "".join(result.itertext())


def test_a_run_of_another_format_follows_its_words() -> None:
    text = docx_document(f"<w:p>{run('a ')}{run('red car', BOLD)}{run(' came.')}</w:p>")
    [passage] = [each for each in passages_of(Format.DOCX, text) if each.has_words]
    assert passage.text == "a red car came."
    links = (Link(10, 14, 0, 3), Link(0, 1, 4, 7), Link(2, 5, 8, 13), Link(6, 9, 14, 18))
    target = passage.written(Translation("kam ein rotes Auto", links))
    result = passage.before + target + text[len(passage.before) + len(passage.source) :]
    assert texts_of(result) == [[(False, "kam ein "), (True, "rotes Auto")]]


def test_a_raised_number_is_no_part_of_the_word_before_it() -> None:
    raised = run("3", '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>')
    text = docx_document(f"<w:p>{run('in 1850')}{raised}{run(' by a king')}</w:p>")
    passages = passages_of(Format.DOCX, text)
    assert sent(passages) == ["in 1850 by a king"]
    assert f"{run('IN 1850')}{raised}{run(' BY A KING')}" in in_capitals(passages)


def test_the_raised_ending_of_an_ordinal_number_becomes_plain() -> None:
    raised = run("st", '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>')
    passages = passages_of(Format.DOCX, docx_document(f"<w:p>{run('on May 1')}{raised}</w:p>"))
    assert run("ON MAY 1ST") in in_capitals(passages)
    text = odt_document("<text:p>on May 1<text:span>st</text:span></text:p>")
    assert "ON MAY 1ST<" in in_capitals(passages_of(Format.ODT, text))
    assert in_capitals(passages_of(Format.HTML, "the 1<sup>st</sup> day")) == "THE 1ST DAY"


def test_text_in_a_style_of_code_stays() -> None:
    code = run("make x", "<w:rPr><w:rStyle w:val='VerbatimChar'/></w:rPr>")
    block = f'<w:p><w:pPr><w:pStyle w:val="SourceCode"/></w:pPr>{run("def x():")}</w:p>'
    # The format of the end of a paragraph is not that of its text.
    mark = '<w:pPr><w:rPr><w:rStyle w:val="VerbatimChar"/></w:rPr></w:pPr>'
    text = docx_document(f"{block}<w:p>{mark}{run('call ')}{code}</w:p>")
    passages = passages_of(Format.DOCX, text)
    assert sent(passages) == ["call `make x`"]
    assert [each.copied for each in passages if each.copied] == ["code"]
    assert in_capitals(passages) == text.replace("call", "CALL")
    text = '<text:p>call <text:span text:style-name="Source_20_Text">x</text:span></text:p>'
    found = in_capitals(passages_of(Format.ODT, odt_document(text)))
    assert text.replace("call", "CALL") in found


FIELD = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
PAGE = (
    f"{FIELD.format('begin')}<w:r><w:instrText>PAGE</w:instrText></w:r>{FIELD.format('separate')}"
)
MERGE = PAGE.replace("PAGE", " MERGEFIELD Name ")
HYPHEN = "\N{NON-BREAKING HYPHEN}"
ITALIC = "<w:rPr><w:i/></w:rPr>"


@pytest.mark.parametrize(
    ("text", "texts", "expected"),
    [
        # What divides a paragraph also divides a run.
        (
            "<w:r><w:t>a</w:t><w:br/><w:t>b </w:t><w:lastRenderedPageBreak/><w:t>c</w:t></w:r>",
            ["a", "b c"],
            f"{run('A')}<w:r><w:br/></w:r>{run('B C')}",
        ),
        (
            f"{run('Name:')}<w:r><w:tab/><w:t>Tom </w:t></w:r>{run('is', BOLD)}{run(' here')}",
            ["Name:", "Tom is here"],
            f"{run('NAME:')}<w:r><w:tab/></w:r>{run('TOM ')}{run('IS', BOLD)}{run(' HERE')}",
        ),
        # Points stay behind their words.
        (
            f"<w:r>{BOLD}<w:t>The cat</w:t><w:footnoteReference w:id='2'/><w:t> sat</w:t></w:r>",
            ["The cat sat"],
            f"{run('THE CAT', BOLD)}<w:r>{BOLD}<w:footnoteReference w:id='2'/></w:r>"
            f"{run(' SAT', BOLD)}",
        ),
        (
            "<w:r><w:t>e</w:t><w:noBreakHyphen/><w:t>mail trans</w:t><w:softHyphen/>"
            "<w:t>lation</w:t><w:sym w:char='F0'/><w:t> x</w:t></w:r>",
            [f"e{HYPHEN}mail translation x"],
            f"{run(f'E{HYPHEN}MAIL TRANSLATION')}<w:r><w:sym w:char='F0'/></w:r>{run(' X')}",
        ),
        # The language of a run is that of the source.
        (
            f"{run('a ', '<w:rPr><w:noProof/></w:rPr>')}"
            f"{run('b', '<w:rPr><w:i/><w:lang/></w:rPr>')}",
            ["a b"],
            f"{run('A ')}{run('B', ITALIC)}",
        ),
        # Inserted text is text, deleted text is none.
        (
            f"{run('Hel')}<w:ins>{run('lo')}</w:ins>{run(' wor')}"
            f"<w:del><w:r><w:delText>x</w:delText></w:r></w:del>{run('ld now')}"
            f"<w:moveFrom>{run('not')}</w:moveFrom>",
            ["Hello world now"],
            f"<w:ins>{run('HELLO')}</w:ins>{run(' WORLD')}"
            f"<w:del><w:r><w:delText>x</w:delText></w:r></w:del>{run(' NOW')}"
            f"<w:moveFrom>{run('not')}</w:moveFrom>",
        ),
        # Links and controls are elements with formats within them.
        (
            f"{run('See ')}<w:hyperlink w:x='1'>{run('the ', BOLD)}{run('page')}</w:hyperlink>"
            f"<w:sdt><w:sdtPr/><w:sdtContent>{run(' now', ITALIC)}</w:sdtContent></w:sdt>",
            ["See the page now"],
            f"{run('SEE ')}<w:hyperlink w:x='1'>{run('THE ', BOLD)}{run('PAGE')}"
            f"</w:hyperlink>{run(' ')}"
            f"<w:sdt><w:sdtPr/><w:sdtContent>{run('NOW', ITALIC)}</w:sdtContent></w:sdt>",
        ),
        # A field is kept if it has no letter, or else follows its words.
        (
            f"{run('On page ')}{PAGE}{run('12')}{FIELD.format('end')}{run(' it is')}",
            ["On page 12 it is"],
            f"{run('ON PAGE ')}{PAGE}{run('12')}{FIELD.format('end')}{run(' IT IS')}",
        ),
        (
            f"{run('See ')}{PAGE}{run('Figure 3')}{FIELD.format('end')}{run(' below')}",
            ["See Figure 3 below"],
            f"{run('SEE ')}{PAGE}{run('FIGURE 3')}{FIELD.format('end')}{run(' BELOW')}",
        ),
        (
            f"<w:fldSimple w:instr='PAGE'>{run('3')}</w:fldSimple>{run(' of it')}",
            ["3 of it"],
            f"<w:fldSimple w:instr='PAGE'>{run('3')}</w:fldSimple>{run(' OF IT')}",
        ),
        # One of data is kept, such as that of a form letter, but not what is around it.
        (
            f"{run('Dear ')}{MERGE}{run('«Name»')}{FIELD.format('end')}{run(', it rains')}",
            ["Dear «Name», it rains"],
            f"{run('DEAR ')}{MERGE}{run('«Name»')}{FIELD.format('end')}{run(', IT RAINS')}",
        ),
        (
            f"{run('a ')}<w:fldSimple w:instr='mergefield x'>{run('«x»')}</w:fldSimple>",
            ["a «x»"],
            f"{run('A ')}<w:fldSimple w:instr='mergefield x'>{run('«x»')}</w:fldSimple>",
        ),
        (
            f"{run('a ')}{PAGE}{run('b ')}{MERGE}{run('c')}{FIELD.format('end')}{run(' d')}"
            f"{FIELD.format('end')}{run(' e')}",
            ["a b c d e"],
            f"{run('A ')}{PAGE}{run('B ')}{MERGE}{run('c')}{FIELD.format('end')}{run(' D')}"
            f"{FIELD.format('end')}{run(' E')}",
        ),
        # One that goes on in another paragraph divides.
        (
            f"{run('a')}{PAGE}{run('b')}</w:p><w:p>{run('c')}{FIELD.format('end')}{run('d')}",
            ["a", "b", "c", "d"],
            f"{run('A')}{PAGE}{run('B')}</w:p><w:p>{run('C')}{FIELD.format('end')}{run('D')}",
        ),
        (
            f"<w:r><w:t>a</w:t><w:pict><w:p>{run('box')}</w:p></w:pict><w:t>b</w:t></w:r>",
            ["a", "box", "b"],
            f"{run('A')}<w:r><w:pict><w:p>{run('BOX')}</w:p></w:pict></w:r>{run('B')}",
        ),
        (
            f"<w:r><w:t>to </w:t><w:ruby><w:rt>{run('t')}</w:rt><w:rubyBase>{run('Tokyo')}"
            "</w:rubyBase></w:ruby><w:t> go</w:t></w:r>",
            ["to Tokyo go"],
            f"{run('TO ')}<w:r><w:ruby><w:rt>{run('t')}</w:rt><w:rubyBase>{run('TOKYO')}"
            f"</w:rubyBase></w:ruby></w:r>{run(' GO')}",
        ),
        ("<w:r><w:t><![CDATA[a & b]]> c</w:t></w:r>", ["a & b c"], run("A &amp; B C")),
        (f"\n{run('a ')}<!-- c -->\n{run('b')}\n", ["a b"], f"\n{run('A ')}<!-- c -->{run('B')}\n"),
    ],
)
def test_what_is_in_a_paragraph(text: str, texts: list[str], expected: str) -> None:
    source = docx_document(f"<w:p><w:pPr/>{text}</w:p>")
    passages = passages_of(Format.DOCX, source)
    assert sent(passages) == texts
    expected = docx_document(f"<w:p><w:pPr/>{expected}</w:p>")
    assert in_capitals(passages) == expected
    # Without attention each part is translated alone; what is left is XML.
    ElementTree.fromstring(marked(Format.DOCX, source))


def test_a_document_with_another_prefix_is_read() -> None:
    source = docx_document(f"<w:p>{run('a ')}{run('b', BOLD)}</w:p>")
    other = re.sub(r"(</?|xmlns:)w\b", r"\1x", source)
    expected = docx_document(f"<w:p>{run('A ')}{run('B', BOLD)}</w:p>")
    assert in_capitals(passages_of(Format.DOCX, other)) == re.sub(
        r"(</?|xmlns:)w\b", r"\1x", expected
    )


DOCX_PARTS = ["a", "b c", " ", "&lt;", "é", "12"]
RUNS = st.builds(
    run, st.lists(st.sampled_from(DOCX_PARTS)).map(" ".join), st.sampled_from(["", BOLD])
) | st.sampled_from(
    [
        *("<w:r><w:br/></w:r>", '<w:bookmarkStart w:id="1"/>', "<w:proofErr/>", "\n"),
        "<w:r><w:rPr><w:b/></w:rPr><w:t>a</w:t><w:tab/><w:t>d </w:t><w:sym/><w:t>e</w:t></w:r>",
        *(FIELD.format("begin"), FIELD.format("end"), f"<w:ins>{run('f', BOLD)}</w:ins>"),
    ]
)


@given(st.lists(st.lists(RUNS)))
def test_any_part_stays_as_is_and_is_xml_with_all_words(paragraphs: list[list[str]]) -> None:
    text = docx_document("".join(f"<w:p>{''.join(runs)}</w:p>" for runs in paragraphs))
    passages = passages_of(Format.DOCX, text)
    before, after = (
        ["".join(text for _, text in runs) for runs in texts_of(source)]
        for source in (text, written(passages))
    )
    assert [re.sub(r"\s+", "", each) for each in after] == [
        re.sub(r"\s+", "", each) for each in before
    ]


@given(st.lists(RUNS), st.randoms(use_true_random=False))
def test_wherever_words_go_texts_are_in_runs_of_their_own(runs: list[str], random: Random) -> None:
    # One that fails stays between others.
    passages = [
        each if random.random() > 0.2 else replace(each, text="")
        for each in passages_of(Format.DOCX, docx_document(f"<w:p>{''.join(runs)}</w:p>"))
    ]
    result = written(passages, lambda each: shuffled(each, random))
    for parent in ElementTree.fromstring(result).iter():
        is_run = parent.tag == f"{W}r"
        for child in parent:
            in_run = child.tag[len(W) :] in ("t", "br", "tab", "sym", "fldChar", "rPr")
            assert in_run is is_run or parent.tag == f"{W}rPr", (parent.tag, child.tag)


def odt_document(text: str) -> str:
    return f'<o:text xmlns:o="urn:o" xmlns:text="{TEXT}">\n{text}\r\n</o:text>'


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        ("<text:p>a\n b</text:p>", "<text:p>«a b»</text:p>"),
        "<text:h>«a &lt; 1»</text:h>x",
        "<text:p>«a» <text:span>«b»</text:span><text:s/>«c»</text:p>",
        (
            "<text:p>«a»<text:line-break/>«b»<text:note><text:citation>1x</text:citation>"
            "<text:p>«c»</text:p></text:note>«d»</text:p>"
        ),
        "<text:p/><o:p>a</o:p>",
    ),
)
def test_paragraphs(text: str, expected: str) -> None:
    assert marked(Format.ODT, odt_document(text)) == odt_document(expected)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("«Name:»<text:tab/>«Tom»", ["Name:", "Tom"]),
        ("«Dear» <text:database-display>Ann</text:database-display>", ["Dear Ann"]),
        (
            "«Hello.»<text:s/>«World»<text:s text:c='3'/>«now, a» <text:s/>«b»",
            ["Hello. World now, a b"],
        ),
        (
            "«to» <text:ruby><text:ruby-base>«Tokyo»</text:ruby-base><text:ruby-text>t"
            "</text:ruby-text></text:ruby> «on» <text:date>«May 3»</text:date>, «page» "
            "<text:page-number>12</text:page-number> "
            "<text:conditional-text>«if so»</text:conditional-text>",
            ["to Tokyo on May 3, page 12 if so"],
        ),
        ("«a»<o:note><text:p>«b»</text:p></o:note>", ["a", "b"]),
        ("«a» <o:frame><o:image/></o:frame>, «c»", ["a, c"]),
        (
            "«a»<text:span> </text:span>«b»<text:span><text:s/></text:span>«c» <text:span/>«d»",
            ["a b c d"],
        ),
        ("«a» <![CDATA[«b & c»]]> «d»", ["a b & c d"]),
        (
            "«a»<text:tracked-changes><text:p>gone</text:p></text:tracked-changes> «b»",
            ["a", "b"],
        ),
    ],
)
def test_what_is_in_a_paragraph_of_odt(text: str, texts: list[str]) -> None:
    [(source, expected)] = capital_pairs(odt_document(f"<text:p>{text}</text:p>"))
    passages = passages_of(Format.ODT, source)
    assert sent(passages) == texts
    assert in_capitals(passages) == expected


def test_points_within_a_word_of_odt_stay_behind_it() -> None:
    point, mark = "<text:change-start/>", "<text:reference-mark-start/>"
    text = f"<text:p>wo{point}rd an{mark}d <text:meta>mo</text:meta>re</text:p>"
    passages = passages_of(Format.ODT, odt_document(text))
    assert sent(passages) == ["word and more"]
    expected = f"<text:p>WORD{point} AND{mark} <text:meta>MORE</text:meta></text:p>"
    assert in_capitals(passages) == odt_document(expected)


@pytest.mark.parametrize(("position", "read"), [("super 58%", "in 1850"), ("0% 58%", "in 18503")])
def test_a_raised_number_of_odt_is_no_part_of_the_word_before_it(position: str, read: str) -> None:
    style = (
        '<style:style xmlns:style="u" style:name="T1" style:family="text"><style:text-properties'
        f' fo:x="1" xmlns:fo="v" style:text-position="{position}"/></style:style>'
    )
    raised = '<text:span text:style-name="T1">3</text:span>'
    text = odt_document(f"{style}<text:p>in 1850{raised} by a king</text:p>")
    passages = passages_of(Format.ODT, text)
    assert sent(passages) == [f"{read} by a king"]
    assert raised in in_capitals(passages)


ODT_PARTS = ["a", "b c", " ", "&lt;", "é", "12", "<text:s/>", "<text:span>d e</text:span>"]
ODT_PARTS += ["<text:x/>", "<text:note><text:p>n</text:p></text:note>"]
ODT_PARTS += ['<text:a x="1">f <o:img/></text:a>']


@given(st.lists(st.lists(st.sampled_from(ODT_PARTS)).map("".join)))
def test_any_part_stays_to_the_byte_and_is_xml_when_translated(texts: list[str]) -> None:
    text = odt_document("".join(f"<text:p>{each}</text:p>" for each in texts))
    passages = passages_of(Format.ODT, text)
    before, after = (ElementTree.fromstring(each) for each in (text, written(passages)))
    assert sorted(each.tag for each in after.iter()) == sorted(each.tag for each in before.iter())
    assert sorted("".join("".join(after.itertext()).split())) == sorted(
        "".join("".join(before.itertext()).split())
    )


@pytest.mark.parametrize(("properties", "is_code"), [("\n", True), ("<style:x/>", False)])
def test_code_of_pandoc_is_told_from_plain_text_of_libreoffice(
    properties: str, is_code: bool
) -> None:
    style = (
        'style:name="P1" style:family="paragraph" style:parent-style-name="Preformatted_20_Text"'
    )
    styles = f'<a xmlns:style="u"><style:style {style}>{properties}</style:style></a>'
    text = '<text:p text:style-name="P1">make x</text:p>'
    assert sent(passages_of(Format.ODT, odt_document(styles + text))) == ["make x"] * (not is_code)


def test_a_word_that_is_code_elsewhere_in_its_paragraph_is_translated() -> None:
    code = '<text:span text:style-name="Source_Text">text</text:span>'
    result = in_capitals(
        passages_of(Format.ODT, odt_document(f"<text:p>a text of {code}</text:p>"))
    )
    assert result == odt_document(f"<text:p>A TEXT OF {code}</text:p>")
