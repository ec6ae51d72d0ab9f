"""Folders of artifacts that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seqserve.errors import NotWritten

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def staged(place: Path) -> Iterator[Path]:
    """Yields a folder to write in, which becomes ``place`` at the end, or vanishes on an error.

    Raises:
        NotWritten: The folder cannot be made, or the disk is full.
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
        # A first version that failed leaves no model without versions behind.
        with contextlib.suppress(OSError):
            place.parent.rmdir()
