"""Imports a checkpoint, or each of a folder of many, such as all pairs of Firefox or Argos."""

import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from seqserve.documents.archive import DAMAGE, opened
from seqserve.errors import OptionError, SeqserveError
from seqserve_import.ctranslate2_checkpoint import (
    METADATA,
    VOCABULARIES,
    model_folder,
    package_pair,
)
from seqserve_import.ctranslate2_weights import FILE
from seqserve_import.files import AGAIN, CheckpointError, check_regular
from seqserve_import.importing import import_checkpoint
from seqserve_import.languages import pair_of
from seqserve_import.loading import open_checkpoint
from seqserve_import.marian_checkpoint import MarianFolder
from seqserve_import.options import ImportOptions

PACKAGE = ".argosmodel"
_MEMBERS = (
    *(METADATA, "sentencepiece.model", "bpe.model"),
    *(f"model/{name}" for name in (FILE, "config.json", *VOCABULARIES)),
)
"""The files of an Argos package that are read; others divide sentences or describe it."""
_MAX_PACKAGE_BYTES = 1 << 34
_OF_ONE = ("source_language", "target_language", "description", "adapter")
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
        with unpacked(options.folder) as folder:
            name = options.name or _name(*pair_of(open_checkpoint(folder)))
            if not name:
                raise OptionError("--name: is missing; the checkpoint does not tell its languages")
            named = replace(options, folder=folder, name=name)
            return named.ready(import_checkpoint(named))
    has_many = f"{options.folder} has {len(folders)} models"
    for name in _OF_ONE:
        if getattr(options, name):
            reason = f"is for one model, and {has_many}; import that folder alone"
            raise OptionError(f"--{name.replace('_', '-')}: {reason}")
    if options.data and not options.data.is_dir():
        reason = "name a folder with a file for each source language, such as en.txt"
        raise OptionError(f"--data: {has_many}; {reason}")
    return _imported(options, folders)


def names_of(folder: Path, folders: Sequence[Path], prefix: str = "") -> list[str]:
    """Chooses a name for each checkpoint: its pair, or its path where that is not enough."""
    pairs = [_name(*languages_in(each)) for each in folders]
    counts = Counter(pairs)
    paths = ("-".join(path.relative_to(folder).parts) for path in folders)
    return [
        prefix + (pair if pair and counts[pair] == 1 else _NO_NAME.sub("-", path))
        for pair, path in zip(pairs, paths, strict=True)
    ]


def _imported(options: ImportOptions, folders: Sequence[Path]) -> str:
    failed = []
    for folder, name in zip(folders, names_of(options.folder, folders, options.name), strict=True):
        data = options.data and _sentences(options.data, folder)
        own = replace(options, folder=folder, name=name, data=data)
        place = options.model_repository / name / str(options.model_version)
        if place.exists():
            print(f"{place}: is there already", flush=True)
            continue
        print(f"{folder}:", flush=True)
        try:
            with unpacked(folder) as unpacked_folder:
                own = replace(own, folder=unpacked_folder)
                print(own.ready(import_checkpoint(own)), flush=True)
        except SeqserveError as error:
            print(error, flush=True)
            failed.append(f"{folder}: {error}")
    if failed:
        listed = "\n".join(failed)
        raise CheckpointError(f"{len(failed)} of {len(folders)} were not imported:\n{listed}")
    return f"{len(folders)} models: ready to serve; `seqserve models --pairs` lists their languages"


def languages_in(folder: Path) -> tuple[str, str]:
    """Returns the languages of a checkpoint of one pair; empty where it does not tell."""
    try:
        if folder.suffix == PACKAGE:
            with unpacked(folder, (METADATA,)) as package:
                return package_pair(package)
        return pair_of(open_checkpoint(folder))
    except SeqserveError:
        # The import says what is wrong with it.
        return "", ""


def _sentences(data: Path, folder: Path) -> Path | None:
    source, _ = languages_in(folder)
    files = (data / f"{source}{ending}" for ending in (".txt", ".tsv"))
    return next((file for file in files if file.is_file()), None)


def _name(source: str, target: str) -> str:
    return f"{source}-{target}" if source and target else ""


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
