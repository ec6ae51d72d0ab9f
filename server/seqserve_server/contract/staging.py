"""Folders of artifacts that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def staged(place: Path) -> Iterator[Path]:
    """Yields a folder to write in, which becomes ``place`` at the end, or vanishes on an error."""
    place.parent.mkdir(parents=True, exist_ok=True)
    # Named so that no server takes it for a version.
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=place.parent))
    try:
        yield draft
        draft.chmod(0o755)
        os.rename(draft, place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        # A first version that failed leaves no model without versions behind.
        with contextlib.suppress(OSError):
            place.parent.rmdir()
