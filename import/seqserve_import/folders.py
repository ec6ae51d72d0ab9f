"""Finds and opens checkpoints: of Hugging Face, Marian and CTranslate2, and packages of Argos."""

import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from seqserve.documents.archive import DAMAGE, opened
from seqserve_import.adapter import AdaptedCheckpoint
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.ctranslate2_checkpoint import (
    METADATA,
    VOCABULARIES,
    CTranslate2Checkpoint,
    model_folder,
)
from seqserve_import.ctranslate2_weights import FILE
from seqserve_import.files import AGAIN, CheckpointError, check_regular
from seqserve_import.marian_checkpoint import MarianCheckpoint, MarianFolder

PACKAGE = ".argosmodel"
_MEMBERS = (
    *(METADATA, "sentencepiece.model", "bpe.model"),
    *(f"model/{name}" for name in (FILE, "config.json", *VOCABULARIES)),
)
"""The files of an Argos package that are read; others divide sentences or describe it."""
_MAX_PACKAGE_BYTES = 1 << 34


def open_checkpoint(folder: Path, adapter: Path | None = None) -> Checkpoint:
    """Opens a folder of Hugging Face, Marian, CTranslate2 or Argos, perhaps with a LoRA of PEFT.

    Raises:
        CheckpointError: It is no checkpoint, a file is missing or damaged, or the adapter is wrong.
    """
    files, model = MarianFolder.find(folder), model_folder(folder)
    if adapter and (files or model):
        raise CheckpointError(f"{folder}: takes no --adapter; only a folder of Hugging Face does")
    if files:
        return MarianCheckpoint(files)
    if model:
        return CTranslate2Checkpoint(folder, model)
    return AdaptedCheckpoint(folder, adapter) if adapter else Checkpoint(folder)


def checkpoints_below(folder: Path) -> list[Path]:
    """Lists the checkpoints below a folder, at any depth; none if it is one itself."""
    if not folder.is_dir() or _is_checkpoint(folder):
        return []
    found: list[Path] = []
    for path in sorted(folder.rglob("*")):
        is_within = any(path.is_relative_to(other) for other in found)
        if not (is_within or path.is_symlink()) and _is_checkpoint(path):
            found.append(path)
    return found


def _is_checkpoint(path: Path) -> bool:
    if not path.is_dir():
        return path.suffix == PACKAGE
    if (path / "config.json").is_file() or model_folder(path):
        return True
    try:
        return MarianFolder.find(path) is not None
    except CheckpointError:
        # The import says what is wrong with it.
        return True


@contextmanager
def unpacked(path: Path, names: tuple[str, ...] = _MEMBERS) -> Iterator[Path]:
    """Yields the folder of a checkpoint; for an Argos package it is temporary.

    Only files of the given names are unpacked, wherever else an archive says that they belong.

    Raises:
        SeqserveError: The archive is damaged, too large, or no package.
    """
    if path.suffix != PACKAGE or path.is_dir():
        yield path
        return
    check_regular(path)
    with (
        TemporaryDirectory(prefix="seqserve-import-") as place,
        opened(path, str(path), _MAX_PACKAGE_BYTES) as archive,
    ):
        folder = Path(place) / path.name
        (folder / "model").mkdir(parents=True)
        parts = {part.filename: part for part in archive.infolist()}
        depths = [name.count("/") for name in parts if name.split("/")[-1] == METADATA]
        roots = [
            name.removesuffix(METADATA)
            for name in parts
            if name.split("/")[-1] == METADATA and name.count("/") == min(depths)
        ]
        if len(roots) != 1:
            raise CheckpointError(f"{path}: has no {METADATA}, or several; {AGAIN}")
        for name in names:
            if part := parts.get(roots[0] + name):
                _unpack(path, archive, part, folder / name)
        yield folder


def _unpack(path: Path, archive: zipfile.ZipFile, part: zipfile.ZipInfo, target: Path) -> None:
    try:
        with archive.open(part) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file)
    except (*DAMAGE, OSError) as error:
        raise CheckpointError(f"{path}: {part.filename:.200}: cannot be read: {error}") from None
