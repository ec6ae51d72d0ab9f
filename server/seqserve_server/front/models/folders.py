"""Lists the version folders of a model repository, and detects when their files change."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from seqserve_server.artifact import manifest
from seqserve_server.contract.errors import ArtifactError

Files: TypeAlias = tuple[tuple[str, int, int, int, int], ...]
"""Name, size, mtime, ctime and inode of each file; equal as long as no file is written.

Only ctime shows a change of permissions.
"""

DEFAULT_FILE = "default"
"""Holds the name of the model that serves calls which name none."""

VERSION = r"[1-9][0-9]{0,8}"
"""The number of a version, as a regular expression."""
# A folder that was just removed, a circle of links, or one we may not read, such as lost+found.
_IGNORED_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The folders of a repository."""

    versions: list[Path]
    """The folders ``<name>/<version>/``, sorted."""
    ignored: dict[Path, str]
    """Folders that look like models or versions but are none, and why."""
    has_models: bool
    """Whether there is a folder of a model, even one without versions."""


def list_folders(repository: Path) -> Listing:
    """Lists the folders of a repository; raises OSError if it is unreadable.

    Names that begin with a dot belong to editors, file systems and unfinished copies.
    """
    # Without the right to enter it, iterdir would still list names and every version look gone.
    os.stat(os.path.join(repository, os.curdir))
    models = [path for path in repository.iterdir() if _is_shown(path) and _is_folder(path)]
    versions: list[Path] = []
    ignored: dict[Path, str] = {}
    for model in models:
        # It could not be shown in a reply.
        if not model.name.isprintable():
            ignored[model] = "the name of a model must be printable"
            continue
        children = [path for path in _children(model) if _is_shown(path)]
        if any(path.name == manifest.FILE for path in children):
            ignored[model] = f"{manifest.FILE} belongs into a folder <name>/<version>/"
        for folder in filter(_is_folder, children):
            if re.fullmatch(VERSION, folder.name):
                versions.append(folder)
            else:
                ignored[folder] = "a version is a number from 1 to 999999999, without leading zeros"
    return Listing(versions=sorted(versions), ignored=ignored, has_models=bool(models))


def default_of(repository: Path) -> str:
    """Reads the name of the default model; empty if the repository names none.

    A folder of this name is a model.

    Raises:
        OSError: The file cannot be read.
    """
    file = repository / DEFAULT_FILE
    return file.read_text(encoding="utf-8", errors="replace").strip() if file.is_file() else ""


def files_of(folder: Path) -> Files:
    """Lists the files of a version; empty if the folder has just been removed."""
    stamps = []
    for file in _children(folder):
        try:
            state = file.stat()
        except OSError:
            continue
        times = (state.st_mtime_ns, state.st_ctime_ns)
        stamps.append((file.name, state.st_size, *times, state.st_ino))
    return tuple(sorted(stamps))


def has_manifest(files: Files) -> bool:
    """Tells whether the manifest is there; an export writes it last."""
    return any(name == manifest.FILE for name, *_ in files)


def check_inside(folder: Path, repository: Path) -> None:
    """Raises ArtifactError if a folder is a link out of the repository."""
    if not folder.resolve().is_relative_to(repository.resolve()):
        raise ArtifactError(
            f"{folder}: is a link that leads out of the repository; put the model itself there"
        )


def _is_shown(path: Path) -> bool:
    return not path.name.startswith(".")


def _is_folder(path: Path) -> bool:
    with _ignoring_unreadable():
        return stat.S_ISDIR(path.stat().st_mode)
    return False


def _children(folder: Path) -> list[Path]:
    with _ignoring_unreadable():
        return [folder / name for name in os.listdir(folder)]
    return []


@contextmanager
def _ignoring_unreadable() -> Iterator[None]:
    """Ignores paths that lead nowhere or may not be read, but raises if the disk itself fails."""
    try:
        yield
    except OSError as error:
        if error.errno not in _IGNORED_ERRORS:
            raise
