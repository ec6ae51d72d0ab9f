"""The files of a source: a folder, or an archive whose names are never used as paths."""

from __future__ import annotations

import posixpath
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Self, TypeAlias

from seqserve.documents import archive
from seqserve.errors import OptionError
from seqserve_server.contract.errors import ArtifactError

Files: TypeAlias = Mapping[str, Callable[[], IO[bytes]]]
"""Opens each regular file, by its name from the top, in the order in which they are stored."""

_MAX_PARTS = 20_000
_CHUNK_BYTES = 1 << 20
_MAX_HEADER_BYTES = 1 << 20
_CONTENTS = (*tarfile.REGULAR_TYPES, tarfile.GNUTYPE_SPARSE)
_DAMAGE = (tarfile.TarError, *archive.DAMAGE)


@contextmanager
def opened(path: Path, label: str, max_bytes: int) -> Iterator[Files]:
    """Opens a folder or an archive.

    Args:
        path: The folder or the archive, of tar or of zip.
        label: Its name in errors.
        max_bytes: Most bytes of all that an archive holds.

    Raises:
        OptionError: It is neither, or has more than fits.
        ArtifactError: The archive is damaged.
    """
    if path.is_dir():
        yield _files_of(path)
    elif not path.is_file():
        raise OptionError(f"source: {label} is neither a file nor a folder")
    elif zipfile.is_zipfile(path):
        with archive.opened(path, label, max_bytes) as parts:
            yield {
                _name(part.filename): partial(parts.open, part)
                for part in parts.infolist()
                if not (part.is_dir() or stat.S_ISLNK(part.external_attr >> 16))
            }
    else:
        with _tar(path, label, max_bytes) as files:
            yield files


def chunks(opening: Callable[[], IO[bytes]], label: str) -> Iterator[bytes]:
    """Reads a file of a source piece by piece.

    Raises:
        ArtifactError: It cannot be read; the message calls it ``label``.
    """
    try:
        with opening() as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except (*_DAMAGE, OSError) as error:
        raise ArtifactError(f"{label}: cannot be read: {error}") from None


def _files_of(folder: Path) -> Files:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): partial(_read, file) for file in files}


def _read(file: Path) -> IO[bytes]:
    return file.open("rb")


@contextmanager
def _tar(path: Path, label: str, max_bytes: int) -> Iterator[Files]:
    with ExitStack() as stack:
        try:
            parts = stack.enter_context(tarfile.open(path, tarinfo=_Part))
        except (*_DAMAGE, OSError) as error:
            raise OptionError(f"{label}: is neither a tar nor a zip archive: {error}") from None
        try:
            files = {
                _name(part.name): partial(_extracted, parts, part)
                for part in _bounded(parts, label, max_bytes)
                # Neither folders, links nor devices.
                if part.isreg()
            }
        except (*_DAMAGE, OSError) as error:
            raise ArtifactError(f"{label}: is damaged: {error}") from None
        yield files


class _Part(tarfile.TarInfo):
    """A part whose long names and other headers, which are read as a whole, are short enough."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        part = super().frombuf(buf, encoding, errors)
        if part.type not in _CONTENTS and part.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header has {part.size:,} bytes")
        return part


def _bounded(parts: tarfile.TarFile, label: str, max_bytes: int) -> Iterator[tarfile.TarInfo]:
    """Yields the parts; ends before more than fits is unpacked."""
    size = 0
    for count, part in enumerate(parts, start=1):
        size += part.size
        if count > _MAX_PARTS or size > max_bytes:
            raise OptionError(
                f"{label}: unpacks to more than {_MAX_PARTS:,} parts or {max_bytes / 1e9:g} GB;"
                " see --max-gb"
            )
        yield part


def _extracted(parts: tarfile.TarFile, part: tarfile.TarInfo) -> IO[bytes]:
    file = parts.extractfile(part)
    assert file is not None  # it is a regular file
    return file


def _name(name: str) -> str:
    return posixpath.normpath(name)
