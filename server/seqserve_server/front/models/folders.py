"""The folders of a model repository: which versions lie there, and whether they lie still."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from seqserve_server.contract import manifest
from seqserve_server.contract.errors import ArtifactError

Files: TypeAlias = tuple[tuple[str, int, int, int, int], ...]
"""Name, size, times of change and number of each file: equal as long as nobody writes.

The second time is that of the inode: only it tells that a file was given other permissions.
"""

# What has vanished since it was seen, links in a circle, and what is not for us to read, as a
# disk's lost+found.
_FORGIVEN = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM)


def versions_in(repository: Path) -> list[Path]:
    """Lists the folders ``<name>/<version>/``, and passes over what is no version.

    Raises:
        OSError: The repository cannot be read.
    """
    # Raises where it may be listed but nothing in it looked at: that is no sign of an empty one.
    os.stat(os.path.join(repository, os.curdir))
    return sorted(
        folder
        for model in repository.iterdir()
        # Names with a dot belong to editors, file systems and unfinished copies; names that cannot
        # be printed could not be shown in a reply.
        if not model.name.startswith(".") and model.name.isprintable() and _is_folder(model)
        for folder in _children(model)
        if re.fullmatch(r"[1-9][0-9]{0,8}", folder.name) and _is_folder(folder)
    )


def files_of(folder: Path) -> Files:
    """Looks at the files of a version; none where it has just vanished."""
    found = []
    for file in _children(folder):
        try:
            state = file.stat()
        except OSError:
            continue
        times = (state.st_mtime_ns, state.st_ctime_ns)
        found.append((file.name, state.st_size, *times, state.st_ino))
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


def _is_folder(path: Path) -> bool:
    with _forgiving():
        return stat.S_ISDIR(path.stat().st_mode)
    return False


def _children(folder: Path) -> list[Path]:
    with _forgiving():
        return [folder / name for name in os.listdir(folder)]
    return []


@contextmanager
def _forgiving() -> Iterator[None]:
    """Lets pass that something leads nowhere or may not be read; a disk that fails is an error."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FORGIVEN:
            raise
