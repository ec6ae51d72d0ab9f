import pytest

from seqserve.documents.formats import Format, encoding_of
from seqserve.documents.plain_text import MARK, decoded
from seqserve.errors import OptionError

TEXT = "grüße\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_mark_tells_the_encoding(encoding: str) -> None:
    assert decoded((MARK + TEXT).encode(encoding)) == (TEXT, MARK, encoding)
    assert decoded(TEXT.encode()) == (TEXT, "", "utf-8")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a b".encode("utf-16-le"), "^has NUL characters as utf-16-le has them; convert it"),
        ("a b".encode("utf-32-be"), "^has NUL characters as utf-32-be has them; convert it"),
        ("Доброе утро".encode("utf-16-le"), "^is not utf-8|^has a NUL character"),
        (b"a\n\0", "^has a NUL character; the file is not text"),
        (b"\xff\xfea", "^is not utf-16-le: truncated data at byte 2; convert it to UTF-8"),
        ("grüße".encode("latin-1"), "^is not utf-8: invalid start byte at byte 2; convert it"),
    ],
)
def test_what_is_no_text_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        decoded(content)


META = '<html><head><meta charset="{}"></head><p>{}</p>'
HTTP_EQUIV = '<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset={}"><p>{}</p>'
XML = "<?xml version='1.0' encoding='{}'?><resources><string>{}</string></resources>"


@pytest.mark.parametrize(
    ("kind", "form", "declared", "encoding"),
    [
        # Source: Encoding Standard, section 4.2.
        (Format.HTML, META, "iso-8859-1", "cp1252"),
        (Format.HTML, HTTP_EQUIV, "windows-1252", "cp1252"),
        (Format.HTML, XML, "iso-8859-1", "iso8859-1"),
        (Format.ANDROID, XML, "iso-8859-15", "iso8859-15"),
        (Format.XLIFF, XML, "Windows-1250", "cp1250"),
        (Format.RESX, XML, "utf-8", "utf-8"),
    ],
)
def test_markup_declares_its_encoding(
    kind: Format, form: str, declared: str, encoding: str
) -> None:
    assert encoding_of(kind, form.format(declared, "a").encode()) == encoding
    content = form.format(declared, "grüße").encode(encoding)
    assert encoding_of(kind, content) == encoding
    # Its author has converted it and left the declaration.
    assert encoding_of(kind, form.format(declared, "grüße").encode()) == "utf-8"


@pytest.mark.parametrize("declared", ["", "none", "utf-16", "utf-7", "hex", "idna", "\udcff"])
def test_an_encoding_that_no_markup_can_have_is_not_read(declared: str) -> None:
    content = META.format(declared, "a").encode(errors="surrogateescape")
    assert encoding_of(Format.HTML, content) == "utf-8"


def test_other_formats_declare_no_encoding() -> None:
    content = META.format("iso-8859-1", "a").encode()
    assert encoding_of(Format.TEXT, content) == encoding_of(Format.MARKDOWN, content) == "utf-8"


@pytest.mark.parametrize(
    ("content", "encoding"), [(b"a=b", "utf-8"), ("a=ü".encode(), "utf-8"), (b"\xfc", "iso-8859-1")]
)
def test_a_file_of_java_that_is_not_utf_8_is_latin_1(content: bytes, encoding: str) -> None:
    assert encoding_of(Format.PROPERTIES, content) == encoding
