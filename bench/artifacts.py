"""Finds the artifacts to compare, the newest version of each precision, and writes further ones."""

from __future__ import annotations

import shutil
from pathlib import Path

from seqserve_export.artifact import Description
from seqserve_export.pipeline import write_artifact
from seqserve_model.transformer import Transformer
from seqserve_server.contract.manifest import Manifest, Provenance
from seqserve_server.contract.tokenizer import Tokenizer

_DECODERS = {True: "a recurrent decoder", False: "self-attention in its decoder"}


def newest(model: Path, precision: str = "", *, is_recurrent: bool | None = None) -> Path:
    """Finds the highest version of a model.

    Args:
        model: Folder of its versions.
        precision: Only versions of this one; any where empty.
        is_recurrent: Whether the decoder is recurrent (SSRU); either where None.

    Raises:
        SystemExit: There is none.
    """
    found = [
        folder
        for folder in (model.iterdir() if model.is_dir() else ())
        if folder.name.isdecimal()
        and (not precision or Manifest.read(folder).precision == precision)
        and (is_recurrent is None or _is_recurrent(folder) == is_recurrent)
    ]
    if not found:
        decoder = "" if is_recurrent is None else f" with {_DECODERS[is_recurrent]}"
        raise SystemExit(f"{model}: holds no {precision} version{decoder}")
    return max(found, key=lambda folder: int(folder.name))


def _is_recurrent(folder: Path) -> bool:
    return Manifest.read(folder).architecture.cell_width is not None


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
    return write_artifact(lambda: model, tokenizer, repository, description, held_out=None)
