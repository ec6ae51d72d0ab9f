import pytest

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
