from __future__ import annotations

from pathlib import Path

import pytest

from seqserve.command.lines import lines_of
from seqserve.errors import OptionError


def test_lines(tmp_path: Path) -> None:
    file = tmp_path / "source.txt"
    file.write_bytes("grüße\r\n\nlone \r stays\n\xa0\nlast".encode())
    assert list(lines_of(file)) == ["grüße", "", "lone \r stays", "\xa0", "last"]


def test_bytes_that_are_not_utf_8_affect_only_their_own_line(tmp_path: Path) -> None:
    file = tmp_path / "source.txt"
    file.write_bytes(b"a\n\xff\nb\n")
    assert list(lines_of(file)) == ["a", "\udcff", "b"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "none"):
        with pytest.raises(OptionError, match=f"--file: {file}: "):
            next(lines_of(file))
