from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from seqserve.documents.source_file import SourceFile
from seqserve.errors import OptionError

TEXT = "Grüße\r\n\rÄ \u2028 b\nend"


@pytest.mark.parametrize(
    ("written", "given", "mark"),
    [
        ("utf-8", "utf-8", False),
        ("utf-8", "cp1252", True),
        ("utf-16-le", "utf-8", True),
        ("utf-16-be", "utf-8", True),
        ("euc-kr", "euc-kr", False),
    ],
)
def test_lines_and_encoding(tmp_path: Path, written: str, given: str, mark: bool) -> None:
    path = tmp_path / "a.txt"
    text = TEXT if written != "euc-kr" else "안녕\r\n"
    path.write_bytes((("\ufeff" if mark else "") + text).encode(written))
    with closing(SourceFile(path, given)) as source:
        assert "".join(source) == text
        assert (source.encoding, source.mark) == (written, "\ufeff" * mark)


def test_lines_keep_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT.encode())
    with closing(SourceFile(path, "utf-8")) as source:
        assert list(source) == ["Grüße\r\n", "\r", "Ä \u2028 b\n", "end"]


def test_a_line_in_another_encoding_is_told_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("a\nGrüße\n".encode("latin-1"))
    with closing(SourceFile(path, "utf-8")) as source:
        lines = iter(source)
        assert next(lines) == "a\n"
        with pytest.raises(OptionError, match="line 2 is not utf-8: byte 0xFC after 2 characters"):
            next(lines)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(OptionError, match=str(path)):
            SourceFile(path, "utf-8")
    path = tmp_path / "a.txt"
    path.write_bytes(b"a")
    with pytest.raises(OptionError, match="--encoding: there is no 'utf-9'"):
        SourceFile(path, "utf-9")
