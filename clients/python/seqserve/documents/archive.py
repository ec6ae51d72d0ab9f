"""Documents that are archives of parts, as .docx, .odt and .epub: which parts are translated."""

from __future__ import annotations

import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import BinaryIO

from seqserve.documents.formats import ARCHIVES, Format
from seqserve.errors import OptionError

# An archive may be small and what is in it large.
_MAX_BYTES = 1 << 30
_MAX_TEXT_BYTES = 1 << 26
_MAX_PARTS = 20_000
_CHUNK_BYTES = 1 << 16
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(NotImplementedError, EOFError, IndexError, ValueError),
)
"""What Python raises where an archive is damaged, besides OSError."""


@contextmanager
def opened(
    file: Path | BinaryIO, name: str, max_bytes: int = _MAX_BYTES
) -> Iterator[zipfile.ZipFile]:
    """Opens an archive; ``max_bytes`` limits the size of all its parts."""
    try:
        archive = zipfile.ZipFile(file)
    except (*DAMAGE, OSError) as error:
        raise _unreadable(name, error) from None
    with archive:
        parts = archive.infolist()
        size = sum(part.file_size for part in parts)
        if len(parts) > _MAX_PARTS or size > max_bytes:
            raise OptionError(f"{name}: has {len(parts):,} parts of {size:,} bytes: too many")
        if any(part.flag_bits & 1 for part in parts):
            raise OptionError(f"{name}: is encrypted; save it without a password")
        if len({part.filename for part in parts}) < len(parts):
            raise OptionError(f"{name}: has two parts of the same name")
        if not all(part.filename for part in parts):
            raise OptionError(f"{name}: has a part without a name")
        yield archive


def is_text(kind: Format, part: zipfile.ZipInfo) -> bool:
    """Returns whether a part is translated."""
    return bool(re.fullmatch(ARCHIVES[kind], part.filename))


def rewrite(
    source: zipfile.ZipFile,
    target: zipfile.ZipFile,
    kind: Format,
    written: Callable[[zipfile.ZipInfo], str],
) -> None:
    """Writes an archive again, with what is written for each part that is translated.

    The other parts stay to the byte.
    """
    if not any(is_text(kind, part) for part in source.infolist()):
        reason = (
            f"has no part with the text of a document of {kind.value}; it may be of another format"
        )
        raise OptionError(": ".join(filter(None, (source.filename, reason))))
    for part in source.infolist():
        if is_text(kind, part):
            target.writestr(copy(part), written(part).encode(), part.compress_type)
            continue
        with target.open(copy(part), "w") as new:
            for chunk in _chunks(source, part):
                new.write(chunk)


def text_of(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> str:
    """Reads a part that is translated."""
    name = _name(archive, part)
    if part.file_size > _MAX_TEXT_BYTES:
        raise OptionError(f"{name}: has {part.file_size:,} bytes; {_MAX_TEXT_BYTES:,} can be read")
    content = b"".join(_chunks(archive, part))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{name}: is not UTF-8: {error.reason} at byte {error.start}") from None


def _chunks(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with archive.open(part) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except (*DAMAGE, OSError) as error:
        raise _unreadable(_name(archive, part), error) from None


def _name(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> str:
    return ": ".join(filter(None, (archive.filename, part.filename)))


def _unreadable(name: str, error: Exception) -> OptionError:
    if isinstance(error, OSError) and error.strerror:
        return OptionError(f"{name}: {error.strerror}")
    return OptionError(f"{name}: is no archive that can be read: {error}")
