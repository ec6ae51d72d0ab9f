"""The files of an artifact: their hashes, and folders that appear whole or not at all."""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqserve.errors import NotWritten
from seqserve_server.contract.errors import ArtifactError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigest:
    """Hash and size of a file."""

    sha256: str
    bytes: int


def check_file(path: Path, digest: FileDigest) -> None:
    """Raises ArtifactError if a file has another digest, or is a link out of its folder."""
    check_place(path)
    try:
        actual = digest_of(path)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from None
    check_digest(actual, digest, str(path))


def check_digest(actual: FileDigest, expected: FileDigest, label: str) -> None:
    """Raises ArtifactError, which calls the file ``label``, unless it has the expected digest."""
    if actual.sha256 != expected.sha256:
        raise ArtifactError(
            f"{label}: sha256 is {actual.sha256[:12]}…, the manifest says {expected.sha256[:12]}…;"
            " the file is damaged or was changed: export or copy the model again"
        )
    if actual.bytes != expected.bytes:
        raise ArtifactError(
            f"{label}: has {actual.bytes} bytes, and its sha256 is right, but the manifest says"
            f" {expected.bytes} bytes; the manifest was changed: export or copy the model again"
        )


def check_place(path: Path) -> None:
    """Refuses links out of the folder and anything but a regular file; allows missing files."""
    try:
        real = path.resolve()
        is_within = real.is_relative_to(path.parent.resolve())
        is_other = real.exists() and not real.is_file()
    except (OSError, RuntimeError) as error:
        raise ArtifactError(f"{path}: cannot be followed: {error}") from None
    if not is_within:
        raise ArtifactError(f"{path}: is a link that leaves its folder; copy the file there")
    if is_other:
        raise ArtifactError(f"{path}: is not a regular file")


def digest_of(path: Path) -> FileDigest:
    """Reads a file and computes its digest."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileDigest(sha256=sha256, bytes=path.stat().st_size)


@contextlib.contextmanager
def atomic_folder(place: Path) -> Iterator[Path]:
    """Yields a folder to write in, which becomes ``place`` at the end, or vanishes on an error.

    Raises NotWritten if it cannot be made, or the disk is full.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Named so that no server takes it for a version.
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=place.parent))
    except OSError as error:
        raise NotWritten(f"{place.parent.parent}: {error.strerror}") from None
    try:
        yield draft
        draft.chmod(0o755)
        os.rename(draft, place)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise NotWritten(f"{place}: {error.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        # If the first version failed, the empty folder of the model is removed too.
        with contextlib.suppress(OSError):
            place.parent.rmdir()
