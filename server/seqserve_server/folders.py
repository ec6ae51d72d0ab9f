"""The folders of a model repository: which versions lie there, and whether they lie still."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeAlias

from seqserve_server import manifest
from seqserve_server.errors import ArtifactError

Files: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Name, size, time of change and number of each file: equal as long as nobody writes."""


def versions_in(repository: Path) -> list[Path]:
    """Lists the folders ``<name>/<version>/``, and passes over what is no version.

    Raises:
        OSError: The repository cannot be read.
    """
    return sorted(
        folder
        for model in repository.iterdir()
        # What editors, file systems and copies under way keep for themselves; and bytes that are no
        # text could not be listed.
        if not model.name.startswith(".") and model.name.isprintable() and model.is_dir()
        for folder in _children(model)
        if re.fullmatch(r"[1-9][0-9]{0,8}", folder.name) and folder.is_dir()
    )


def files_of(folder: Path) -> Files:
    """Looks at the files of a version; none where it has just vanished."""
    found = []
    for file in _children(folder):
        try:
            state = file.stat()
        except OSError:
            continue
        found.append((file.name, state.st_size, state.st_mtime_ns, state.st_ino))
    return tuple(sorted(found))


def is_whole(files: Files) -> bool:
    """Whether the manifest is there, which is written last."""
    return any(name == manifest.FILE for name, *_ in files)


def check_inside(folder: Path, repository: Path) -> None:
    """Refuses a folder that a link has brought in from elsewhere.

    Raises:
        ArtifactError: It does not lie in the repository.
    """
    if not folder.resolve().is_relative_to(repository.resolve()):
        raise ArtifactError(
            f"{folder}: is a link that leads out of the repository; put the model itself there"
        )


def _children(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # It has vanished since it was seen, or is not for us to read, as a disk's lost+found.
        return []
