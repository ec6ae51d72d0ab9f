"""Finds the artifacts to compare: the newest version of each precision."""

from __future__ import annotations

import shutil
from pathlib import Path

from seqserve_server.contract.manifest import Manifest


def newest(model: Path, precision: str = "") -> Path:
    """Finds the highest version of a model.

    Args:
        model: Folder of its versions.
        precision: Only versions of this one; any where empty.
    """
    found = [
        folder
        for folder in model.iterdir()
        if folder.name.isdecimal()
        and (not precision or Manifest.read(folder).precision == precision)
    ]
    if not found:
        raise SystemExit(f"{model}: holds no {precision} version")
    return max(found, key=lambda folder: int(folder.name))


def repository_of(artifact: Path, folder: Path) -> Path:
    """Makes ``folder`` a model repository that holds one artifact and nothing else."""
    manifest = Manifest.read(artifact)
    versions = folder / manifest.name
    # A link would do for the disk, but a server loads nothing from outside its repository.
    shutil.copytree(artifact, versions / str(manifest.version))
    return folder
