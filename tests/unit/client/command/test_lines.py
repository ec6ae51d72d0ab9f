from __future__ import annotations

from pathlib import Path

import pytest

from seqserve.command.lines import Lines, not_utf8
from seqserve.errors import OptionError


def test_lines(tmp_path: Path) -> None:
    file = tmp_path / "source.txt"
    file.write_bytes("grüße\r\n\nlone \r stays\n\xa0\nlast".encode())
    assert list(Lines(file)) == ["grüße", "", "lone \r stays", "\xa0", "last"]


def test_bytes_that_are_not_utf_8_affect_only_their_own_line(tmp_path: Path) -> None:
    file = tmp_path / "source.txt"
    file.write_bytes(b"a\n\xff\nb\n")
    assert list(Lines(file)) == ["a", "\udcff", "b"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "none"):
        with pytest.raises(OptionError, match=f"--file: {file}: "):
            next(iter(Lines(file)))


def test_the_mark_of_a_windows_file_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "source.txt"
    file.write_bytes(b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\n")
    lines = Lines(file)
    assert list(lines) == ["a", "\ufeffb"]
    assert lines.end == "\r\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_refused(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "source.txt"
    file.write_bytes("\ufeffa\nb\n".encode(encoding))
    with pytest.raises(OptionError, match="is UTF-16; convert it"):
        list(Lines(file))


@pytest.mark.parametrize(
    ("content", "count"), [(b"", 0), (b"a", 1), (b"a\nb\n", 2), (b"a\n\nb", 3), (b"\n" * 9, 9)]
)
def test_the_number_of_lines(tmp_path: Path, content: bytes, count: int) -> None:
    file = tmp_path / "source.txt"
    file.write_bytes(content)
    assert Lines(file).count() == len(list(Lines(file))) == count


def test_lines_that_can_be_read_once_are_not_counted(tmp_path: Path) -> None:
    assert Lines(Path("-")).count() is None
    assert Lines(tmp_path).count() is None


def test_what_is_not_utf_8_is_told(tmp_path: Path) -> None:
    file = tmp_path / "source.txt"
    file.write_bytes("Grüße".encode("latin-1"))
    error = not_utf8(*Lines(file))
    assert error and error.details == (
        "source: is not UTF-8: byte 0xFC after 2 characters; convert it"
    )
    assert not_utf8("Grüße") is None
