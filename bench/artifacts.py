"""Finds the artifacts to compare, the newest version of each precision, and writes further ones."""

from __future__ import annotations

import shutil
from pathlib import Path

from seqserve_export.artifact import Description, write_artifact
from seqserve_model.transformer import Transformer
from seqserve_server.contract.manifest import Manifest, Provenance
from seqserve_server.contract.tokenizer import Tokenizer


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


def write_unproven(
    model: Transformer, tokenizer: Tokenizer, repository: Path, name: str, about: str
) -> Path:
    """Exports a model for measurements of speed into ``repository/<name>/1``."""
    description = Description(
        name=name,
        version=1,
        description=about,
        licence="Apache-2.0",
        provenance=Provenance(command="", commit="", data_licence="", attribution=""),
    )
    return write_artifact(lambda: model, tokenizer, repository, description, prove=None)
