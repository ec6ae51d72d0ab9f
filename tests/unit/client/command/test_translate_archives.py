import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from .conftest import Run

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
DOCX = f'<w:document {W}><w:p><w:r><w:t xml:space="preserve">{{}}</w:t></w:r></w:p></w:document>'
TEXT = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
ODT = f'<o:d xmlns:o="urn:o" {TEXT}><text:p>{{}}</text:p></o:d>'
EPUB = '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><body><p>{}</p></body></html>'
PICTURE = bytes(range(256)) * 300


def archive(path: Path, parts: Mapping[str, str | bytes], mark: str = "some/type") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("mimetype", mark, zipfile.ZIP_STORED)
        for name, data in parts.items():
            file.writestr(name, data)
    return path


def parts_of(path: Path) -> list[tuple[str, int, bytes]]:
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        return [(each.filename, each.compress_type, file.read(each)) for each in file.infolist()]


@pytest.mark.parametrize(
    ("suffix", "name", "part"),
    [
        (".docx", "word/document.xml", DOCX),
        (".docx", "word/header2.xml", DOCX),
        (".odt", "content.xml", ODT),
        (".epub", "OEBPS/one.xhtml", EPUB),
    ],
)
def test_text_in_archives(seqserve: Run, tmp_path: Path, suffix: str, name: str, part: str) -> None:
    others: dict[str, str | bytes] = {"a.xml": "<a>no</a>", "media/a.png": PICTURE}
    source = archive(tmp_path / f"a{suffix}", {name: part.format("grün\u00a0b"), **others})
    out = tmp_path / f"b{suffix}"
    assert seqserve("translate", source, "-o", out) == (0, "", "")
    expected = archive(tmp_path / "expected", {name: part.format("GRÜN\u00a0B"), **others})
    assert parts_of(out) == parts_of(expected)
    assert {path.name for path in tmp_path.iterdir()} == {source.name, out.name, "expected"}


@pytest.mark.parametrize(
    ("declared", "encoding"), [("iso-8859-2", "iso-8859-2"), ("UTF-16", "utf-16")]
)
@pytest.mark.parametrize("text", ["łódź", "plain"])
def test_a_part_in_another_encoding_becomes_utf_8(
    seqserve: Run, tmp_path: Path, declared: str, encoding: str, text: str
) -> None:
    form = f"<?xml version='1.0' encoding='{{}}'?>{ODT}"
    source, out = tmp_path / "a.odt", tmp_path / "b.odt"
    archive(source, {"content.xml": form.format(declared, text).encode(encoding)})
    assert seqserve("translate", source, "-o", out) == (0, "", "")
    [_, (_, _, content)] = parts_of(out)
    assert content.decode() == form.format("utf-8", text.upper())


def test_a_passage_that_fails_is_reported_with_its_part(seqserve: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "a.odt", tmp_path / "b.odt"
    archive(path, {"content.xml": ODT.format("fail INTERNAL")})
    status, _, err = seqserve("translate", path, "-o", out)
    assert status == 1 and f"{path}: content.xml: line 1: INTERNAL" in err
    assert parts_of(out) == parts_of(path)


@pytest.mark.parametrize(
    ("mark", "name", "part"),
    [
        ("application/vnd.oasis.opendocument.presentation\n", "content.xml", ODT),
        ("x", "word/document.xml", DOCX),
        ("application/epub+zip", "OEBPS/one.xhtml", EPUB),
    ],
)
def test_format_of_archives(seqserve: Run, tmp_path: Path, mark: str, name: str, part: str) -> None:
    path, out = archive(tmp_path / "a", {name: part.format("good day")}, mark), tmp_path / "b"
    assert seqserve("translate", path, "-o", out) == (0, "", "")
    assert parts_of(out)[1] == (name, zipfile.ZIP_DEFLATED, part.format("GOOD DAY").encode())


def test_an_archive_of_something_else_is_refused(seqserve: Run, tmp_path: Path) -> None:
    path = archive(tmp_path / "a", {"b.txt": "c"})
    status, _, err = seqserve("translate", path, "-o", tmp_path / "b")
    assert status == 2 and "a: is an archive of no format that is known; --format names one" in err


def test_an_index_that_is_too_large_is_refused(seqserve: Run, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.pptx", {"_rels/.rels": b" " * (9 << 20)})
    status, _, err = seqserve("translate", path, "-o", tmp_path / "b.pptx")
    assert status == 2 and "_rels/.rels: has 9,437,184 bytes; 8,388,608 can be read" in err


def test_a_file_of_java_that_is_not_utf_8_is_latin_1(translate: Run, tmp_path: Path) -> None:
    out = tmp_path / "b.properties"
    assert translate("a.properties", b"a=gr\xfcn \\u0107\n", "-o", out) == (0, "", "")
    assert out.read_bytes() == b"a=GR\xdcN \\u0106\n"


def test_standard_output_is_refused(seqserve: Run, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.docx", {})
    status, _, err = seqserve("translate", path)
    assert status == 2 and err == "seqserve: --out: a file of docx needs one to be written to\n"


def _lying(path: Path) -> None:
    """Makes an archive whose directory says that a part is larger than it is."""
    archive(path, {"content.xml": ODT})
    data = path.read_bytes()
    # The last entry of the directory: its size is 24 bytes behind its begin.
    at = data.rindex(b"PK\x01\x02") + 24
    path.write_bytes(data[:at] + (1 << 31).to_bytes(4, "little") + data[at + 4 :])


def _damaged(method: int, begin: bytes) -> Callable[[Path], None]:
    """Makes an archive of which a part is damaged, from some bytes on."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", method) as whole:
            whole.writestr("content.xml", ODT)
            whole.writestr("\xe4.png", bytes(range(256)))
        data = path.read_bytes()
        at = data.index(begin) + len(begin)
        path.write_bytes(data[:at] + b"\xff" * 9 + data[at + 9 :])

    return write


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: path.write_text("text"), "is not a readable archive"),
        # An old document of Office, or one that is encrypted.
        (lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0" * 999), "must be saved anew"),
        (_damaged(zipfile.ZIP_DEFLATED, b"content.xml"), "is not a readable archive"),
        (_damaged(zipfile.ZIP_BZIP2, b"BZh"), "is not a readable archive"),
        (_damaged(zipfile.ZIP_LZMA, b"content.xml"), "is not a readable archive"),
        # The name that stands before the picture itself, not that in the directory.
        (_damaged(zipfile.ZIP_STORED, b"\xc3"), "png: is not a readable archive"),
        (
            lambda path: archive(path, {"content.xml": "<a>"}),
            "content.xml: line 1 is not well-formed",
        ),
        (lambda path: archive(path, {"content.xml": b"\xff"}), "content.xml: is not utf-8"),
        (
            lambda path: archive(path, {"word/document.xml": DOCX, "word/styles.xml": DOCX}),
            "has no part with the text of a document of odt",
        ),
        (_lying, "2,147,483,657 bytes; 20,000 of 1,073,741,824 can be read"),
        (
            lambda path: archive(path, {"content.xml": b" " * ((1 << 26) + 1)}),
            "content.xml: has 67,108,865 bytes; 67,108,864 can be read",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(
    seqserve: Run, tmp_path: Path, write: Callable[[Path], object], reason: str
) -> None:
    path, out = tmp_path / "a.odt", tmp_path / "b.odt"
    write(path)
    out.write_text("before")
    status, _, err = seqserve("translate", path, "-o", out)
    [report] = err.splitlines()
    assert status == 2 and report.startswith(f"seqserve: {path}: ") and reason in report
    assert out.read_text() == "before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.odt", "b.odt"]


def related(relations: str) -> str:
    """Each relation is its type and its target."""
    form = '<Relationship Type="http://x/{}" Target="{}"/>'
    listed = "".join(form.format(*each.split(" ")) for each in relations.split(", "))
    return f"<Relationships>{listed}</Relationships>"


BOOK = "<package><manifest>{}</manifest></package>"
ITEM = '<item href="{}" media-type="application/{}"/>'


@pytest.mark.parametrize(
    ("suffix", "index", "part", "translated", "kept"),
    [
        (
            ".docx",
            {
                "_rels/.rels": related("officeDocument /word/document2.xml, x no.xml"),
                # It also has what leads back, or nowhere.
                "word/_rels/document2.xml.rels": related(
                    "header ../top.xml, comments ../comments.xml, officeDocument document2.xml,"
                    " footer ../../no/where.xml"
                ),
            },
            DOCX,
            ["word/document2.xml", "top.xml", "comments.xml"],
            ["word/document.xml", "word/comments.xml", "no.xml"],
        ),
        (
            ".pptx",
            {
                "_rels/.rels": related("officeDocument ppt/presentation.xml"),
                "ppt/_rels/presentation.xml.rels": related(
                    "slide slides/slide1.xml, notesMaster notes.xml, slideMaster master.xml"
                ),
                "ppt/slides/_rels/slide1.xml.rels": related(
                    "notesSlide ../notes1.xml, chart ../charts/chart1.xml,"
                    " diagramData /ppt/data1.xml, diagramLayout ../layout1.xml"
                ),
                "ppt/charts/_rels/chart1.xml.rels": related("package ../embedded.xlsx"),
            },
            DOCX,
            [
                *["ppt/presentation.xml", "ppt/slides/slide1.xml"],
                *["ppt/notes1.xml", "ppt/charts/chart1.xml", "ppt/data1.xml"],
            ],
            ["ppt/notes.xml", "ppt/layout1.xml", "ppt/embedded.xlsx", "ppt/slides/slide2.xml"],
        ),
        (
            ".xlsx",
            {
                "_rels/.rels": related("officeDocument xl/workbook.xml"),
                "xl/_rels/workbook.xml.rels": related(
                    "worksheet /xl/worksheets/sheet1.xml, styles styles.xml,"
                    " sharedStrings sharedStrings.xml"
                ),
                "xl/worksheets/_rels/sheet1.xml.rels": related(
                    "comments ../comments1.xml, threadedComment ../thread.xml,"
                    " drawing ../drawing.xml, table ../tables/table1.xml"
                ),
            },
            DOCX,
            [
                "xl/workbook.xml",
                "xl/sharedStrings.xml",
                "xl/comments1.xml",
                "xl/thread.xml",
                "xl/drawing.xml",
            ],
            ["xl/worksheets/sheet1.xml", "xl/styles.xml", "xl/tables/table1.xml"],
        ),
        (
            ".epub",
            {
                "META-INF/container.xml": '<container><rootfile full-path="a/b.opf"/></container>',
                "a/b.opf": BOOK.format(
                    ITEM.format("one%20two.xml", "xhtml+xml")
                    + ITEM.format("../toc.ncx", "x-dtbncx+xml")
                    + ITEM.format("three.xml", "x")
                ),
            },
            EPUB,
            ["a/one two.xml", "toc.ncx"],
            ["a/three.xml", "four.xhtml"],
        ),
        (".odt", {}, ODT, ["content.xml", "Object 1/content.xml"], ["meta.xml"]),
    ],
)
def test_the_parts_of_text_are_those_that_the_archive_names(
    seqserve: Run,
    tmp_path: Path,
    suffix: str,
    index: dict[str, str],
    part: str,
    translated: list[str],
    kept: list[str],
) -> None:
    parts = {name: part.format("good day") for name in (*translated, *kept)}
    source, out = archive(tmp_path / f"a{suffix}", index | parts), tmp_path / f"b{suffix}"
    assert seqserve("translate", source, "-o", out) == (0, "", "")
    expected = index | parts | {name: part.format("GOOD DAY") for name in translated}
    assert {name: data.decode() for name, _, data in parts_of(out)[1:]} == expected
