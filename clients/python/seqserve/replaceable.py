"""Which file a new one may replace: a regular one, never a device, a pipe or a link."""

from __future__ import annotations

import os
from pathlib import Path

from seqserve.errors import OptionError


def replaceable(path: Path, *, instead: str = "") -> Path:
    """Follows links to the file that a new one replaces; there may be none yet.

    Args:
        path: Of ``--out``.
        instead: What to do if it must not be replaced, for the error.

    Raises:
        OptionError: It is not a regular file.
    """
    place = Path(os.path.realpath(path))
    # A loop of links leads to one of its own.
    is_free = not os.path.exists(path) and not os.path.islink(place)
    if not is_free and not os.path.isfile(path):
        advice = f"; {instead}" if instead else ""
        raise OptionError(f"--out: {path}: is not a regular file{advice}")
    return place
