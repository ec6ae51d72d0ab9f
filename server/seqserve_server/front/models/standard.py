"""Finds the models of a server without ``--model-repository``: in a folder, or in the wheel."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from seqserve.errors import OptionError
from seqserve_server.contract.errors import StartupError
from seqserve_server.front.models.folders import list_folders
from seqserve_server.process import logs

FOLDER = Path("models")
"""Where ``seqserve export``, ``import`` and ``models fetch`` put models."""


def shipped() -> Path:
    """Names the folder that a wheel has models in; a clone has none there."""
    return Path(str(files("seqserve_server"))) / "shipped"


def standard_repository() -> Path:
    """Finds the models to serve, and logs where they are if that is not :data:`FOLDER`.

    Raises:
        StartupError: There are none; the message tells how to get one.
    """
    if _has_versions(FOLDER):
        return FOLDER
    if not (folder := shipped()).is_dir():
        raise StartupError(
            f"--model-repository: not given, and there is no model in the folder"
            f" {str(FOLDER)!r}; start where there is one, name the folder that has models, or"
            f" `seqserve models fetch SOURCE` puts one there"
        )
    logs.event("shipped model", {"folder": folder})
    return folder


def _has_versions(folder: Path) -> bool:
    try:
        return folder.is_dir() and bool(list_folders(folder).versions)
    except OSError as error:
        raise OptionError(f"--model-repository: {folder}: {error.strerror}") from None
