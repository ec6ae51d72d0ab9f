import time

import pytest

from seqserve.documents.formats import Format
from seqserve.documents.passage import ParseError

from .marking import passages_of
from .test_office import docx_document, odt_document, run

XLIFF = "<xliff><trans-unit><source>{}</source></trans-unit></xliff>"
ANDROID = "<resources><string>{}</string></resources>"
BOLD = "<w:rPr><w:b/></w:rPr>"
FIELD = '<w:r><w:t>a</w:t><w:fldChar w:fldCharType="begin"/></w:r>'
SPANS = "<text:span>a</text:span> <text:s/><text:bookmark/>"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Format.DOCX, docx_document("<w:x>" * 250 + f"<w:p>{run('a')}</w:p>" + "</w:x>" * 250)),
        (Format.DOCX, docx_document(f"<w:p>{(run('a ') + run('b', BOLD)) * 1000}</w:p>")),
        (Format.DOCX, docx_document(f"<w:p>{'<w:r><w:t>a</w:t><w:br/></w:r>' * 1000}</w:p>")),
        (Format.DOCX, docx_document(f"<w:p>{FIELD * 1000}</w:p>")),
        (Format.ODT, odt_document(f"<text:p>{SPANS * 1000}</text:p>")),
        (Format.ODT, odt_document(f"<text:p>{'a<!---->' * 5000}</text:p>")),
        (
            Format.ODT,
            odt_document(f"<text:p>{('<text:x>a' * 250 + '</text:x>' * 250) * 10}</text:p>"),
        ),
        (Format.ODT, odt_document(f"<text:p x='{'&lt;' * 200_000}'>a</text:p>")),
        (Format.XLIFF, XLIFF.format('<x id="START_A"/>b' * 2000 + '<x id="CLOSE_B"/>c' * 2000)),
        (Format.ANDROID, ANDROID.format("<b>a</b> %s {b} " * 1000)),
        (Format.ANDROID, ANDROID.format("<![CDATA[a]]>" * 2000)),
        (Format.EPUB, "<p>" + "a<b>" * 2000),
    ],
    ids=lambda each: str(each)[:60],
)
def test_a_long_document_is_read_in_seconds(kind: Format, text: str) -> None:
    # A second at most where it is read once; minutes if each element is looked for its end.
    begin_s = time.process_time()
    passages_of(kind, text)
    assert time.process_time() - begin_s < 30


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<a>" * 300, "within 256 others"),
        ("<w:p/>", "not well-formed XML: unbound prefix"),
        ("<a>&b;</a>", "undefined entity"),
        ('<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><a>&d;</a>', "an entity that is more"),
        ("<!DOCTYPE a [<!ENTITY % b SYSTEM 'file:///etc/passwd'> %b;]><a/>", "declares 'b'"),
        ("<a>\x00</a>", "not well-formed"),
        ("<!--" * 100_000, "not well-formed"),
        ("<![CDATA[" * 100_000, "not well-formed"),
        ("", "no element found"),
    ],
)
def test_what_is_no_xml_is_refused(text: str, reason: str) -> None:
    for kind in (Format.DOCX, Format.ODT, Format.XLIFF, Format.ANDROID):
        with pytest.raises(ParseError, match=reason):
            passages_of(kind, text)
