"""The folders of a model repository, ``<name>/<version>/``: where it is, what is in it, and when
that changes."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TypeAlias

from seqserve.errors import OptionError
from seqserve_server.artifact import manifest
from seqserve_server.contract.errors import ArtifactError, StartupError
from seqserve_server.process import logs

MODELS = Path("models")
"""Where ``seqserve export``, ``import`` and ``models fetch`` put models."""
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


def standard_repository() -> Path:
    """Finds the models of a server without ``--model-repository``: in a folder, or in the wheel."""
    if _has_versions(MODELS):
        return MODELS
    if not (folder := shipped()).is_dir():
        raise StartupError(
            f"--model-repository: is not set, and the folder {str(MODELS)!r} has no model; name"
            " the folder of your models, start where it is, or fetch a model with `seqserve models"
            " fetch SOURCE`"
        )
    logs.event("shipped model", {"folder": folder})
    return folder


def shipped() -> Path:
    """Returns the folder of a wheel's models; a clone has none there."""
    return Path(str(resources.files("seqserve_server"))) / "shipped"


def _has_versions(folder: Path) -> bool:
    try:
        return folder.is_dir() and bool(list_folders(folder).versions)
    except OSError as error:
        raise OptionError(f"--model-repository: {folder}: {error.strerror}") from None


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
        inside = [path for path in _children(model) if _is_shown(path)]
        if any(path.name == manifest.FILE for path in inside):
            ignored[model] = f"{manifest.FILE} belongs into a folder <name>/<version>/"
        for folder in filter(_is_folder, inside):
            if re.fullmatch(VERSION, folder.name):
                versions.append(folder)
            else:
                ignored[folder] = "a version is a number from 1 to 999999999, without leading zeros"
    return Listing(versions=sorted(versions), ignored=ignored, has_models=bool(models))


def files_of(folder: Path, is_shown: Callable[[str], object] = bool) -> Files:
    """Lists the files of a folder whose names are shown; empty if it has just been removed."""
    stamps = []
    with _ignoring_unreadable(), os.scandir(folder) as files:
        for file in files:
            # Before more than the name is kept: there may be a million.
            if not is_shown(file.name):
                continue
            try:
                state = os.stat(file.path)
            except OSError:
                continue
            times = (state.st_mtime_ns, state.st_ctime_ns)
            stamps.append((file.name, state.st_size, *times, state.st_ino))
    return tuple(sorted(stamps))


def _is_folder(path: Path) -> bool:
    with _ignoring_unreadable():
        return stat.S_ISDIR(path.stat().st_mode)
    return False


def _children(folder: Path) -> list[Path]:
    with _ignoring_unreadable():
        return [folder / name for name in os.listdir(folder)]
    return []


@contextlib.contextmanager
def _ignoring_unreadable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # If the disk itself fails, no version must look gone.
        if error.errno not in _IGNORED_ERRORS:
            raise


def default_of(repository: Path) -> str:
    """Reads the name of the default model, not a folder; empty if the repository names none."""
    file = repository / DEFAULT_FILE
    return file.read_text(encoding="utf-8", errors="replace").strip() if file.is_file() else ""


def _is_shown(path: Path) -> bool:
    return not path.name.startswith(".")


def check_inside(folder: Path, repository: Path) -> None:
    """Raises ArtifactError if a folder is a link out of the repository."""
    if not folder.resolve().is_relative_to(repository.resolve()):
        raise ArtifactError(
            f"{folder}: is a link that leads out of the repository; put the model itself there"
        )


def model_folder(model: str | Path | None, repository: Path | None = None) -> Path:
    """Returns the folder of the version that a server would serve: the highest that is complete.

    The model is the folder of a version or of a model, or its name in the repository:
    ``models/en-de``, ``en-de/5``, ``en-de``. None is the repository's default model, or its only
    one.
    """
    if model is not None and (folder := _version(Path(model))):
        return folder
    repository = repository or standard_repository()
    if model is not None and (folder := _version(repository / model)):
        return folder
    if not repository.is_dir():
        no_folder = "" if model is None else f"{model} is not a folder of a model, and "
        raise OptionError(f"{no_folder}{repository} is not a folder of models")
    names = sorted({folder.parent.name for folder in _complete(repository)})
    if model is not None:
        versions = _versions(repository, Path(model).parent.name)
        listed = ", ".join([f"{each.parent.name}/{each.name}" for each in versions] or names)
        held = listed or "no models"
        raise OptionError(f"there is no model {str(model)!r:.80}; {repository} holds {held}")
    default = default_of(repository)
    if not default and len(names) != 1:
        listed = ", ".join(names) or "no models"
        raise OptionError(f"name a model: {repository} has no file `{DEFAULT_FILE}`, but {listed}")
    return model_folder(default or names[0], repository)


def _version(folder: Path) -> Path | None:
    if (folder / manifest.FILE).is_file():
        return folder
    versions = _versions(folder.parent, folder.name) if folder.is_dir() else []
    return max(versions, key=lambda each: int(each.name), default=None)


def _versions(repository: Path, name: str) -> list[Path]:
    return [folder for folder in _complete(repository) if folder.parent.name == name]


def _complete(repository: Path) -> list[Path]:
    return [
        folder for folder in list_folders(repository).versions if (folder / manifest.FILE).is_file()
    ]
