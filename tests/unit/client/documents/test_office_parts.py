import re
from xml.etree import ElementTree

import pytest

from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.formats import Format, parser_of
from seqserve.documents.office import parse

from .marking import in_capitals, marked, passages_of, sent, written
from .test_office import TEXT

OFFICE = "http://schemas.openxmlformats.org/{}/2006/main"
STRICT = "http://purl.oclc.org/ooxml/{}/main"
NAMES = {"a": "drawingml", "p": "presentationml", "s": "spreadsheetml", "w": "wordprocessingml"}
CHART = "http://schemas.openxmlformats.org/drawingml/2006/chart"
NEWER = "http://schemas.microsoft.com/office"
OTHERS = {
    "c": CHART,
    "cx": f"{NEWER}/drawing/2014/chartex",
    "tc": f"{NEWER}/spreadsheetml/2018/threadedcomments",
}


def part(text: str, root: str = "p:sld", form: str = OFFICE) -> str:
    spaces = {prefix: form.format(name) for prefix, name in NAMES.items()} | OTHERS
    declared = "".join(f' xmlns:{prefix}="{space}"' for prefix, space in spaces.items())
    return f"<{root}{declared}>{text}</{root}>"


def slide_run(text: str, properties: str = "") -> str:
    return f"<a:r>{properties}<a:t>{text}</a:t></a:r>"


def paragraph(*runs: str) -> str:
    return f"<a:p><a:pPr/>{''.join(runs)}<a:endParaRPr/></a:p>"


def cached(kind: str, *values: str) -> str:
    points = "".join(f'<c:pt idx="0"><c:v>{value}</c:v></c:pt>' for value in values)
    return f"<c:f>Sheet1!$A$1</c:f><c:{kind}><c:ptCount/>{points}</c:{kind}>"


def header(text: str) -> str:
    return f"<s:headerFooter><s:oddHeader>{text}</s:oddHeader></s:headerFooter>"


EN, BOLD = '<a:rPr lang="en-US" dirty="0"/>', '<a:rPr lang="en-US" b="1"/>'
NUMBER = '<a:fld type="slidenum"><a:rPr/><a:t>4</a:t></a:fld>'
FORMULA = '<s:c t="str"><s:f>A1&amp;"b"</s:f><s:v>ab</s:v></s:c>'
FONT = "<s:rPr><s:b/></s:rPr>"
PROMPT = "<p:sp><p:nvSpPr><p:nvPr><p:ph{}/></p:nvPr></p:nvSpPr>{}</p:sp>"


@pytest.mark.parametrize(
    ("text", "texts", "expected"),
    [
        # The language of a run and the marks of its spelling are those of the source.
        (
            paragraph(slide_run("a ", EN), slide_run("b", "<a:rPr err='1'/>")),
            ["a b"],
            paragraph(slide_run("A B")),
        ),
        (
            paragraph(slide_run("a ", EN), slide_run("red car", BOLD), slide_run(" came", EN)),
            ["a red car came"],
            paragraph(slide_run("A "), slide_run("RED CAR", '<a:rPr b="1"/>'), slide_run(" CAME")),
        ),
        (
            paragraph(slide_run("a"), "<a:br/>", slide_run("b")),
            ["a", "b"],
            paragraph(slide_run("A"), "<a:br/>", slide_run("B")),
        ),
        (
            paragraph(slide_run("page "), NUMBER, slide_run(" of it")),
            ["page 4 of it"],
            paragraph(slide_run("PAGE "), NUMBER, slide_run(" OF IT")),
        ),
        ("<p:cm><p:pos/><p:text>a comment</p:text></p:cm>", ["a comment"], None),
        # Of charts titles, names and labels, but no formula and no number.
        (cached("strCache", "East", "12"), ["East"], None),
        (cached("numCache", "nan", "1E5"), [], None),
        ("<c:tx><c:v>a name</c:v></c:tx>", ["a name"], None),
        (
            "<cx:strDim><cx:f>A</cx:f><cx:lvl><cx:pt>East</cx:pt></cx:lvl></cx:strDim>",
            ["East"],
            None,
        ),
        ("<cx:numDim><cx:lvl><cx:pt>NaN</cx:pt></cx:lvl></cx:numDim>", [], None),
        # Cells: no formula, no number, and no gloss.
        ("<s:si><s:t> two\n lines </s:t></s:si>", ["two\n lines"], None),
        (
            f"<s:si><s:r><s:t>a </s:t></s:r><s:r>{FONT}<s:t>b</s:t></s:r></s:si>",
            ["a b"],
            f'<s:si><s:r><s:t xml:space="preserve">A </s:t></s:r><s:r>{FONT}'
            '<s:t xml:space="preserve">B</s:t></s:r></s:si>',
        ),
        ("<s:si><s:t>word</s:t><s:rPh><s:t>gloss</s:t></s:rPh></s:si>", ["word"], None),
        (
            f"{FORMULA}<s:c><s:is><s:t>c</s:t></s:is></s:c>",
            ["c"],
            f"{FORMULA}<s:c><s:is><s:t>C</s:t></s:is></s:c>",
        ),
        ("<tc:c><tc:text>is it so?</tc:text></tc:c>", ["is it so?"], None),
        ("<tc:c><tc:text>is it so?</tc:text><tc:mentions/></tc:c>", [], None),
        # Codes of a header divide it; a number of a page follows its words.
        (
            header('&amp;L&amp;"Arial,Bold"&amp;12Report&amp;CPage &amp;P of &amp;N'),
            ["Report", "Page &P of &N"],
            header('&amp;L&amp;"Arial,Bold"&amp;12REPORT&amp;CPAGE &amp;P OF &amp;N'),
        ),
        (header("&amp;Ra &amp;&amp; b"), ["a & b"], header("&amp;RA &amp;&amp; B")),
    ],
)
@pytest.mark.parametrize("form", [OFFICE, STRICT])
def test_slides_and_sheets(text: str, texts: list[str], expected: str | None, form: str) -> None:
    source = part(text, form=form)
    passages = passages_of(Format.PPTX, source)
    assert sent(passages) == texts
    if expected is None:
        expected = text if not texts else text.replace(texts[0], texts[0].upper())
    assert in_capitals(passages) == part(expected, form=form)
    ElementTree.fromstring(marked(Format.XLSX, source))


@pytest.mark.parametrize(
    ("root", "texts"), [("p:sldLayout", ["a logo"]), ("p:sld", ["a title", "a logo"])]
)
def test_prompts_of_a_model_of_slides_are_seen_by_nobody(root: str, texts: list[str]) -> None:
    prompt = PROMPT.format(' type="title"', paragraph(slide_run("a title")))
    shape = f"<p:sp><p:nvSpPr/>{paragraph(slide_run('a logo'))}</p:sp>"
    assert sent(passages_of(Format.PPTX, part(prompt + shape, root))) == texts


def test_sheets_write_characters_by_their_codes() -> None:
    cells = "<s:si><s:t>one_x000D_\ntwo _x005F_x0041_</s:t></s:si>"
    cells += f"<s:si><s:r><s:t>a</s:t></s:r><s:r>{FONT}<s:t>_x000d_b &lt;</s:t></s:r></s:si>"
    passages = passages_of(Format.XLSX, part(cells, "s:sst"))
    assert sent(passages) == ["one\r\ntwo _x0041_", "a\rb <"]
    again = passages_of(Format.XLSX, written(passages))
    assert sent(again) == sent(passages)
    ElementTree.fromstring(written(passages))


def test_texts_that_other_parts_name_stay() -> None:
    cells = "<s:si><s:t>Region_x000D_\n of it</s:t></s:si><s:si><s:t>East</s:t></s:si>"
    cells += cached("strCache", "Region of it")
    assert sent([*parse([part(cells)], kept={"Region of it"})]) == ["East"]


def odf(text: str) -> str:
    spaces = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "presentation")
    )
    return f'<office:document-content{spaces} xmlns:text="{TEXT}">{text}</office:document-content>'


CELL = "<table:table-cell{}><text:p>{}</text:p></table:table-cell>"
NOTE = "<office:annotation><text:p>{}</text:p></office:annotation>"


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        (CELL.format(' office:value-type="string"', "word"), ["word"]),
        (CELL.format("", "word"), ["word"]),
        (CELL.format(' office:value-type="date" office:date-value="x"', "May 3"), []),
        (CELL.format(' table:formula="of:=[.A1]" office:value-type="string"', "word"), []),
        (f"<table:table-cell>{NOTE.format('note')}<text:p>word</text:p></table:table-cell>", None),
        ("<presentation:footer-decl>at the foot</presentation:footer-decl>", ["at the foot"]),
        (
            '<table:table-cell office:value-type="float">'
            f"{NOTE.format('note')}<text:p>5 euros</text:p></table:table-cell>",
            ["note"],
        ),
        (
            '<table:table-cell table:formula="a" office:string-value="euros">'
            "<frame><text:p>note</text:p></frame><text:p>euros</text:p></table:table-cell>",
            ["note"],
        ),
        # A variable of a text is no cell.
        (
            '<text:p>one <text:variable-set text:formula="a" office:value-type="float">two'
            "</text:variable-set> word</text:p>",
            ["one two word"],
        ),
        (f"<table:tracked-changes>{CELL.format('', 'gone')}</table:tracked-changes>", []),
        # A comment is at a place of its paragraph.
        (f"<text:p>one{NOTE.format('note')} word</text:p>", ["note", "one word"]),
        (f"<text:p>{NOTE.format('note')}word</text:p>", ["note", "word"]),
    ],
)
def test_parts_of_open_document(text: str, texts: list[str] | None) -> None:
    passages = passages_of(Format.ODS, odf(text))
    texts = ["note", "word"] if texts is None else texts
    assert sent(passages) == texts
    translated = {word for each in texts for word in (each, *each.split())}
    expected = re.sub(
        r">( ?([^<>]+?) ?)<",
        lambda found: found[0].upper() if found[2] in translated else found[0],
        text,
    )
    assert in_capitals(passages) == odf(expected)


def test_the_format_within_a_comment_divides_it_and_stays() -> None:
    source = f"<text:p>one{NOTE.format('a <text:span>b</text:span> c')} two</text:p>"
    passages = passages_of(Format.ODT, odf(source))
    assert sent(passages) == ["a", "b", "c", "one two"]
    comment = NOTE.format("A <text:span>B</text:span> C")
    assert in_capitals(passages) == odf(f"<text:p>ONE{comment} TWO</text:p>")


@pytest.mark.parametrize(
    ("root", "text"),
    [
        ("w:document", '<w:p><w:r>{}<w:pict><v string="a word"/></w:pict>{}</w:r></w:p>'),
        (
            "w:document",
            '<w:p><w:r>{}<w:drawing><v id="1" descr="a word"/></w:drawing>{}</w:r></w:p>',
        ),
        # A text box, as older programs have it and as newer ones do.
        (
            "w:document",
            '<w:p><w:r>{}<w:drawing><x><docPr title="a word"/><x><w:p/></x></x></w:drawing>{}'
            "</w:r></w:p>",
        ),
        (
            "w:document",
            '<w:p><w:r>{}<w:pict><x alt="a word"><x><w:p/></x></x></w:pict>{}</w:r></w:p>',
        ),
        ("p:sld", '<p:pic><v><p:cNvPr name="no" descr="a word"/></v></p:pic>'),
        ("p:sld", '<p:sp><p:cNvPr descr="a word"/><a:p/></p:sp>'),
        ("p:sld", '<p:grpSp><p:graphicFrame><p:cNvPr descr="a word"/></p:graphicFrame></p:grpSp>'),
        ("x", '<x><pic><cNvPr descr="a word"/></pic></x>'),
        ("p:sld", '<p:sp><a:p/></p:sp><p:pic><v><p:cNvPr name="no" descr="a word"/></v></p:pic>'),
    ],
)
@pytest.mark.parametrize(
    "around", [("", ""), ("<w:t>some</w:t>", "<w:t xml:space='preserve'> x</w:t>")]
)
def test_texts_of_a_picture_are_translated(root: str, text: str, around: tuple[str, str]) -> None:
    source = part(text.format(*around), root)
    found = in_capitals(passages_of(Format.DOCX, source))
    assert '"A WORD"' in found and ElementTree.fromstring(found) is not None
    assert re.sub("<[^>]+>", "", found) == re.sub("<[^>]+>", "", source).upper()


ENTRIES = '<w:list><w:listItem w:displayText="a word" w:value="no"/></w:list>'
TABLE = '<w:tblPr><w:tblCaption w:val="a word"/><w:tblDescription w:val="a text"/></w:tblPr>'


@pytest.mark.parametrize(
    "text",
    [
        f"<w:p><w:sdt><w:sdtPr>{ENTRIES}</w:sdtPr><w:sdtContent>{{}}</w:sdtContent></w:sdt></w:p>",
        f"<w:p>{{}}<w:sdt><w:sdtPr>{ENTRIES}</w:sdtPr><w:sdtContent/></w:sdt></w:p>",
        f"<w:sdt><w:sdtPr>{ENTRIES}</w:sdtPr><w:sdtContent><w:p>{{}}</w:p></w:sdtContent></w:sdt>",
        '<w:p>{}<w:hyperlink w:tooltip="a word"><w:r><w:t>it</w:t></w:r></w:hyperlink></w:p>',
        '<w:p>{}<w:r><w:fldChar w:fldCharType="begin"><d><w:listEntry w:val="a word"/></d>'
        '</w:fldChar></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>',
        f"<w:tbl>{TABLE}<w:tr><w:tc><w:p>{{}}</w:p></w:tc></w:tr></w:tbl>",
    ],
)
def test_texts_that_a_reader_of_word_sees_or_hears_are_translated(text: str) -> None:
    source = part(text.format("<w:r><w:t>see </w:t></w:r>"), "w:document")
    found = in_capitals(passages_of(Format.DOCX, source))
    for old in ("a word", "a text", ">see", ">it"):
        source = source.replace(old, old.upper())
    assert re.sub(' xml:space="preserve"|<w:r></w:r>', "", found) == source


def test_a_link_of_a_slide_has_no_space_around_it() -> None:
    link = slide_run("our page", "<a:rPr><a:hlinkClick/></a:rPr>")
    source = part(paragraph(link, slide_run(" is new")))
    found = in_capitals(passages_of(Format.PPTX, source))
    assert found == source.replace("our page", "OUR PAGE").replace(" is new", " IS NEW")


def test_what_is_there_for_older_programs_is_a_text_for_itself() -> None:
    first, sun, last = (f"<w:r><w:t>{each}</w:t></w:r>" for each in ("we see ", "the sun", " rise"))
    both = f"<Choice>{sun}</Choice><Fallback>{sun}</Fallback>"
    source = part(f"<w:p>{first}<AlternateContent>{both}</AlternateContent>{last}</w:p>", "w:x")
    passages = passages_of(Format.DOCX, source)
    assert sent(passages) == ["the sun", "we see the sun rise"]
    found = re.sub(' xml:space="preserve"', "", in_capitals(passages))
    assert found == re.sub(r"(?<=<w:t>)[^<]+", lambda text: text[0].upper(), source)


def test_a_formula_of_word_stays_in_its_place() -> None:
    formula = "<m:oMath xmlns:m='m'><m:r><w:rPr/><m:t>area</m:t></m:r></m:oMath>"
    runs = "<w:r><w:t>it is </w:t></w:r>{}<w:r><w:t> here</w:t></w:r>"
    source = part(f"<w:p>{runs.format(formula)}</w:p><w:p>{formula}</w:p>", "w:document")
    passages = passages_of(Format.DOCX, source)
    assert sent(passages) == ["it is here"]
    found = in_capitals(passages)
    assert found.count(formula) == 2 and ">IT IS </w:t></w:r><m:oMath" in found


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (
            Format.DOCX,
            '<w:lang w:val="en-US" w:eastAsia="ja-JP" w:bidi="ar-SA"/><w:lang w:val="fr-FR"/>',
            '<w:lang w:val="de-DE" w:eastAsia="ja-JP" w:bidi="ar-SA"/><w:lang w:val="fr-FR"/>',
        ),
        (Format.DOCX, '<w:themeFontLang w:val="en-GB"/>', '<w:themeFontLang w:val="de-DE"/>'),
        (Format.DOCX, '<w:name w:val="en"/>', '<w:name w:val="en"/>'),
        (Format.PPTX, '<a:defRPr sz="9" lang="en-US"/>', '<a:defRPr sz="9" lang="de-DE"/>'),
        (
            Format.ODT,
            '<p fo:language="en" fo:country="US"/><p fo:language="fr" fo:country="FR"/>',
            '<p fo:language="de" fo:country="DE"/><p fo:language="fr" fo:country="FR"/>',
        ),
    ],
)
def test_the_language_of_a_style_follows(kind: Format, text: str, expected: str) -> None:
    start = odf("") if kind is Format.ODT else part("{}", "w:styles")
    start = start.replace("><", " xmlns:fo='fo'>{}<") if kind is Format.ODT else start
    for languages, told in ((Languages("en", "de"), expected), (UNKNOWN, text)):
        passages = parser_of(kind, languages=languages)([start.format(text)])
        assert in_capitals(passages) == start.format(told)
    swiss = [*parser_of(kind, languages=Languages("en", "de-CH"))([start.format(text)])]
    assert in_capitals(swiss) == start.format(expected.replace("DE", "CH"))


def test_cells_that_a_chart_names_stay() -> None:
    spaces = f'xmlns:svg="{TEXT.replace("text:1", "svg-compatible:1")}" xmlns:d="d"'
    cells = f"<d:g {spaces}><svg:desc>'All of it'.$A2:'All of it'.A4</svg:desc></d:g>"
    source = odf(f"<table:table-cell><text:p>word</text:p>{cells}</table:table-cell>")
    assert in_capitals(passages_of(Format.ODS, source)) == source.replace("word", "WORD")


def test_the_title_of_an_index_is_translated_and_the_name_of_an_author_is_not() -> None:
    title = "<text:index-title-template>all of it</text:index-title-template>"
    author = "<text:p>by <text:author-name>ann lee</text:author-name></text:p>"
    source = odf(f"<text:x>{title}</text:x>{author}")
    passages = passages_of(Format.ODT, source)
    assert [(each.text, each.kept) for each in passages if each.has_words] == [
        ("all of it", ()),
        ("by ann lee", ("ann lee",)),
    ]
    found = in_capitals(passages)
    assert found == source.replace("all of it", "ALL OF IT").replace(">by", ">BY")


def test_entries_of_a_list_of_open_document_are_translated() -> None:
    labels = '<text:drop-down><text:label text:value="a word"/>a word</text:drop-down>'
    source = odf(f"<text:p>it is {labels}</text:p>")
    found = in_capitals(passages_of(Format.ODT, source))
    assert found == source.replace("it is", "IT IS").replace("a word", "A WORD")


@pytest.mark.parametrize("content", ["/>", "><text:p>a word</text:p></table:table-cell>"])
def test_the_value_of_a_cell_is_translated_as_programs_show_it(content: str) -> None:
    text = odf(f'<table:table-cell office:string-value="a &quot;word&quot;&#10;b"{content}')
    expected = text.replace("a word", "A WORD").replace(
        "a &quot;word&quot;&#10;b", "A &quot;WORD&quot;&#10;B"
    )
    assert in_capitals(passages_of(Format.ODS, text)) == expected


@pytest.mark.parametrize("text", ["<text:p>{}</text:p>", "<text:p>some {} text</text:p>"])
def test_the_texts_of_a_picture_of_open_document_are_translated(text: str) -> None:
    spaces = f'xmlns:svg="{TEXT.replace("text:1", "svg-compatible:1")}"'
    picture = f"<frame {spaces}><svg:title>a title</svg:title><svg:desc>a &lt; b</svg:desc></frame>"
    found = in_capitals(passages_of(Format.ODT, odf(text.format(picture))))
    expected = picture.replace("a title", "A TITLE").replace("a &lt; b", "A &lt; B")
    assert found == odf(text.format(expected)).replace("some", "SOME").replace(" text<", " TEXT<")
