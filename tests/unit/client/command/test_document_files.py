import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given as draw
from hypothesis import strategies as st

from seqserve.command.document_files import SourceFile, can_be_read_twice
from seqserve.documents.formats import Format
from seqserve.errors import OptionError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.txt"


@pytest.mark.parametrize(
    ("written", "given", "mark"),
    [
        ("utf-8", "utf-8", False),
        ("utf-8", "cp1252", True),
        ("utf-16-le", "utf-8", True),
        ("utf-16-be", "utf-8", True),
        ("utf-32-le", "utf-8", True),
        ("utf-32-be", "utf-8", True),
        ("utf-16-le", "utf-16-le", False),
        ("euc-kr", "euc-kr", False),
    ],
)
def test_lines_and_encoding(path: Path, written: str, given: str, mark: bool) -> None:
    lines = ["Grüße\r\n", "\r", "Ä \u2028 b\n", "end"] if written != "euc-kr" else ["안녕\r\n"]
    path.write_bytes(("\ufeff" * mark + "".join(lines)).encode(written))
    with closing(SourceFile(path, given)) as source:
        assert list(source) == lines
        assert (source.encoding, source.mark) == (written, "\ufeff" * mark)


def test_a_terminal_is_told_that_lines_are_read() -> None:
    program = "import pathlib as p, seqserve.command.document_files as d"
    terminal, inner = os.openpty()
    os.write(terminal, b"a\nb\n\x04")
    with os.fdopen(terminal), os.fdopen(inner) as typed:
        run = [sys.executable, "-c", f"{program}; print(*d.SourceFile(p.Path('-')), end='')"]
        ended = subprocess.run(run, stdin=typed, capture_output=True, text=True, timeout=20)
    assert ended.stdout == "a\n b\n"
    assert ended.stderr == "seqserve: reading lines; end with Ctrl-D\n"


def test_a_line_in_another_encoding_is_named_by_its_number(path: Path) -> None:
    path.write_bytes("a\nGrüße\n".encode("latin-1"))
    with closing(SourceFile(path, "utf-8")) as source:
        lines = iter(source)
        assert next(lines) == "a\n"
        with pytest.raises(OptionError, match="line 2 is not utf-8: byte 0xFC after 2 characters"):
            next(lines)


@pytest.mark.parametrize(
    ("data", "given", "reason"),
    [
        ("a\n".encode("utf-16-le"), "utf-8", "line 1 has NUL characters as utf-16-le has them;"),
        ("\n\na".encode("utf-16-be"), "utf-8", "line 1 has NUL .* --encoding utf-16-be reads it"),
        ("a".encode("utf-32-le"), "latin-1", "--encoding utf-32-le reads it"),
        ("a".encode("utf-32-be"), "utf-16-be", "--encoding utf-32-be reads it"),
        (b"one\ntwo \0", "utf-8", "line 2 has a NUL character; the file is not text"),
        (b"PK\3\4\0", "utf-8", "line 1 has a NUL character; the file is not text"),
    ],
)
def test_a_file_with_nul_is_refused(path: Path, data: bytes, given: str, reason: str) -> None:
    path.write_bytes(data)
    with closing(SourceFile(path, given)) as source, pytest.raises(OptionError, match=reason):
        list(source)


@draw(st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1))
def test_no_ascii_text_in_another_encoding_is_read_wrongly(text: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
            path.write_bytes(text.encode(encoding))
            with (
                closing(SourceFile(path)) as source,
                pytest.raises(OptionError, match=f"--encoding {encoding} reads it"),
            ):
                list(source)


def lines_of(path: Path) -> list[str]:
    """Reads as ``seqserve generate`` does."""
    with closing(SourceFile(path, option="--file", newline="\n", is_strict=False)) as source:
        return list(source)


def test_lines_may_end_with_a_line_feed_alone_and_bytes_become_surrogates(path: Path) -> None:
    path.write_bytes("\ufeffgrüße\r\n\nlone \r stays\n\ufeff\xa0\n".encode() + b"\xff\nlast")
    lines = ["grüße\r\n", "\n", "lone \r stays\n", "\ufeff\xa0\n", "\udcff\n", "last"]
    assert lines_of(path) == lines


def test_an_error_names_the_option(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(OptionError, match=f"--file: {path}: "):
            lines_of(path)


def test_only_a_regular_file_can_be_read_twice(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"a")
    places = (path, tmp_path, tmp_path / "none", Path("/dev/stdin"), Path("-"))
    assert [can_be_read_twice(place) for place in places] == [True, False, False, False, False]


def test_an_unknown_encoding_is_refused(path: Path) -> None:
    path.write_bytes(b"a")
    with pytest.raises(OptionError, match="--encoding: unknown encoding 'utf-9'"):
        SourceFile(path, "utf-9")


def test_a_page_from_a_pipe_tells_its_encoding() -> None:
    content = '<meta charset="windows-1251"><p>Да</p>'.encode("windows-1251")
    end, begin = os.pipe()
    os.write(begin, content)
    os.close(begin)
    with closing(SourceFile(Path(f"/dev/fd/{end}"), kind=Format.HTML)) as source:
        assert (source.encoding, "".join(source).encode("cp1251")) == ("cp1251", content)
    os.close(end)
