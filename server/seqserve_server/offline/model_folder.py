"""Finds the folder of a model by its path, or by its name in a repository."""

from pathlib import Path

from seqserve.errors import OptionError
from seqserve_server.artifact.manifest import FILE
from seqserve_server.artifact.repository import (
    DEFAULT_FILE,
    default_of,
    list_folders,
    standard_repository,
)


def model_folder(model: str | Path | None, repository: Path | None = None) -> Path:
    """Returns the folder of the version that a server would serve: the highest that is complete.

    The model is the folder of a version or of a model, or its name in the repository, with its
    version or without: ``models/en-de``, ``en-de/5``, ``en-de``. None is the default of the
    repository, or its only model. Without a repository, it is the default repository of a server.
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
    if (folder / FILE).is_file():
        return folder
    return _newest(folder.parent, folder.name) if folder.is_dir() else None


def _newest(repository: Path, name: str) -> Path | None:
    return max(_versions(repository, name), key=lambda folder: int(folder.name), default=None)


def _versions(repository: Path, name: str) -> list[Path]:
    return [folder for folder in _complete(repository) if folder.parent.name == name]


def _complete(repository: Path) -> list[Path]:
    return [folder for folder in list_folders(repository).versions if (folder / FILE).is_file()]
