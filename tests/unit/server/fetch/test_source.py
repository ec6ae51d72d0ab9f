"""Archives are read by the names in them, and write nothing."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from seqserve.errors import OptionError
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.fetch.source import chunks, opened

MAX_BYTES = 1 << 20


def contents(path: Path) -> dict[str, bytes]:
    with opened(path, "source", MAX_BYTES) as files:
        return {name: b"".join(chunks(files[name], name)) for name in files}


def tar(path: Path, *parts: tuple[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, part in parts:
            if isinstance(part, tarfile.TarInfo):
                archive.addfile(part)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(part)
            archive.addfile(info, io.BytesIO(part))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return name, info


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_every_kind_of_tar_is_read(mode: str, tmp_path: Path) -> None:
    path = tar(tmp_path / "archive", ("./a/b", b"one"), ("c", b"two"), mode=mode)
    assert contents(path) == {"a/b": b"one", "c": b"two"}


def test_zip_is_read(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/b", "one")
        archive.mkdir("c")
        of_link = zipfile.ZipInfo("d")
        of_link.external_attr = 0o120777 << 16
        archive.writestr(of_link, "/etc/passwd")
    assert contents(path) == {"a/b": b"one"}


def test_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"one")
    assert contents(tmp_path) == {"a/b": b"one"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_what_is_no_file_is_not_there(kind: bytes, tmp_path: Path) -> None:
    path = tar(tmp_path / "archive", ("a", b"one"), link("b", "a", kind))
    assert contents(path) == {"a": b"one"}


def test_nothing_is_written_by_names(tmp_path: Path) -> None:
    folder = tmp_path / "within"
    folder.mkdir()
    path = tar(folder / "archive", ("../outside", b"one"), ("/etc/outside", b"two"))
    assert contents(path) == {"../outside": b"one", "/etc/outside": b"two"}
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def too_large(path: Path) -> None:
    tar(path, ("a", bytes(MAX_BYTES + 1)))


def too_large_as_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(MAX_BYTES + 1))


def too_many_parts(path: Path) -> None:
    tar(path, *((str(number), b"") for number in range(20_001)), mode="w")


def header_that_fills_the_memory(path: Path) -> None:
    header = tarfile.TarInfo("a")
    header.type, header.size = tarfile.XHDTYPE, 2 << 20
    path.write_bytes(header.tobuf() + bytes(2 << 20))


def part_without_a_name(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("QQ", "one")
    path.write_bytes(path.read_bytes().replace(b"QQ", b"\0Q"))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (too_large, "^source: .* see --max-gb"),
        (too_large_as_zip, "^source: has 1 parts of 1,048,577 bytes: too many"),
        (too_many_parts, "20,000 parts"),
        (header_that_fills_the_memory, "a header has 2,097,152 bytes"),
        (part_without_a_name, "a part without a name"),
        (lambda path: path.write_text("no archive"), "source: is neither a tar nor a zip"),
        (lambda path: None, "source: source is neither a file nor"),
    ],
)
def test_what_is_no_sound_archive_is_refused(
    make: Callable[[Path], object], says: str, tmp_path: Path
) -> None:
    make(tmp_path / "archive")
    with pytest.raises((OptionError, ArtifactError), match=says):
        contents(tmp_path / "archive")


def test_every_truncation_ends_in_an_error(tmp_path: Path) -> None:
    # Without a pattern, so that it is about as long as what is in it.
    data = b"".join(number.to_bytes(4, "big") for number in range(500))
    whole = tar(tmp_path / "whole", ("a", data), ("b", data)).read_bytes()
    path = tmp_path / "archive"
    for length in range(0, len(whole) - 8, 50):
        path.write_bytes(whole[:length])
        with pytest.raises((OptionError, ArtifactError)):
            contents(path)
