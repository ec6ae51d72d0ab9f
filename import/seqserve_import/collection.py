"""Imports a checkpoint, or each of a folder of many, such as all pairs of Firefox."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seqserve.errors import OptionError, SeqserveError
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.files import CheckpointError
from seqserve_import.importing import import_checkpoint
from seqserve_import.languages import pair_of
from seqserve_import.marian.checkpoint import open_checkpoint
from seqserve_import.marian.folder import MarianFolder
from seqserve_import.options import ImportOptions

_OF_ONE = ("data", "source_language", "target_language", "description")
"""Options that describe one model."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def import_all(options: ImportOptions) -> str:
    """Imports a folder, or the checkpoints in the folders below it; returns what to print.

    Raises:
        CheckpointError: A checkpoint is damaged, or of a kind that cannot be imported; of many, the
            others are imported before.
        OptionError: The options, the data or the place do not fit.
    """
    folders = checkpoints_below(options.folder)
    if not folders:
        named = replace(options, name=options.name or _pair(open_checkpoint(options.folder)))
        if not named.name:
            raise OptionError("--name: is missing; the checkpoint does not tell its languages")
        return named.ready(import_checkpoint(named))
    for name in _OF_ONE:
        if getattr(options, name):
            reason = f"is for one model, and {options.folder} has {len(folders)}"
            raise OptionError(f"--{name.replace('_', '-')}: {reason}; import that folder alone")
    return _imported(options, folders)


def checkpoints_below(folder: Path) -> list[Path]:
    """Lists the folders below a folder that hold a checkpoint; none if it holds one itself."""
    if not folder.is_dir() or _is_checkpoint(folder):
        return []
    below = (path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())
    return sorted(filter(_is_checkpoint, below))


def names_of(folder: Path, folders: Sequence[Path], prefix: str = "") -> list[str]:
    """Chooses a name for each checkpoint: its pair, or its path where that is not enough."""
    pairs = list(map(_pair_below, folders))
    counts = Counter(pairs)
    paths = ("-".join(path.relative_to(folder).parts) for path in folders)
    return [
        prefix + (pair if pair and counts[pair] == 1 else _NO_NAME.sub("-", path))
        for pair, path in zip(pairs, paths, strict=True)
    ]


def _imported(options: ImportOptions, folders: Sequence[Path]) -> str:
    failed = []
    for folder, name in zip(folders, names_of(options.folder, folders, options.name), strict=True):
        own = replace(options, folder=folder, name=name)
        place = options.model_repository / name / str(options.model_version)
        if place.exists():
            print(f"{place}: is there already", flush=True)
            continue
        print(f"{folder}:", flush=True)
        try:
            print(own.ready(import_checkpoint(own)), flush=True)
        except SeqserveError as error:
            print(error, flush=True)
            failed.append(f"{folder}: {error}")
    if failed:
        listed = "\n".join(failed)
        raise CheckpointError(f"{len(failed)} of {len(folders)} were not imported:\n{listed}")
    return f"{len(folders)} models: ready to serve; `seqserve models --pairs` lists their languages"


def _is_checkpoint(folder: Path) -> bool:
    if (folder / "config.json").is_file():
        return True
    try:
        return MarianFolder.find(folder) is not None
    except CheckpointError:
        # The import says what is wrong with it.
        return True


def _pair_below(folder: Path) -> str:
    try:
        return _pair(open_checkpoint(folder))
    except CheckpointError:
        # The import says what is wrong with it.
        return ""


def _pair(checkpoint: Checkpoint) -> str:
    """Returns the pair of a checkpoint, such as en-de; empty if it does not tell."""
    source, target = pair_of(checkpoint)
    return f"{source}-{target}" if source and target else ""
