"""Documents that are archives of parts, as .docx, .odt and .epub: which parts are translated."""

from __future__ import annotations

import re
import shutil
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


@contextmanager
def opened(
    file: Path | BinaryIO, name: str, max_bytes: int = _MAX_BYTES
) -> Iterator[zipfile.ZipFile]:
    """Opens an archive.

    Args:
        file: The archive, or its bytes.
        name: Its name in errors.
        max_bytes: Most bytes of all its parts.

    Raises:
        OptionError: It cannot be read, is none, is encrypted, or has more than fits.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            size = sum(part.file_size for part in parts)
            if len(parts) > _MAX_PARTS or size > max_bytes:
                raise OptionError(f"{name}: has {len(parts):,} parts of {size:,} bytes: too many")
            if any(part.flag_bits & 1 for part in parts):
                raise OptionError(f"{name}: is encrypted; save it without a password")
            if len({part.filename for part in parts}) < len(parts):
                raise OptionError(f"{name}: has two parts of the same name")
            yield archive
    except OSError as error:
        raise OptionError(f"{name}: {error.strerror}") from None
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error) as error:
        raise OptionError(f"{name}: is no archive that can be read: {error}") from None


def is_text(kind: Format, part: zipfile.ZipInfo) -> bool:
    """Tells whether a part is translated."""
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
    for part in source.infolist():
        if is_text(kind, part):
            target.writestr(copy(part), written(part).encode(), part.compress_type)
            continue
        with source.open(part) as old, target.open(copy(part), "w") as new:
            shutil.copyfileobj(old, new)


def text_of(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> str:
    """Reads a part that is translated.

    Raises:
        OptionError: It is too large, or not UTF-8.
    """
    name = ": ".join(filter(None, (archive.filename, part.filename)))
    if part.file_size > _MAX_TEXT_BYTES:
        raise OptionError(f"{name}: has {part.file_size:,} bytes; {_MAX_TEXT_BYTES:,} can be read")
    try:
        return archive.read(part).decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{name}: is not UTF-8: {error.reason} at byte {error.start}") from None
