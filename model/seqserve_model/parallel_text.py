"""The parallel text of a recipe: its files read, and divided into training, validation, test.

Validation and test are files of their own or held out of the training files. Either way no
sentence of theirs, on either side, is trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqserve_model.data import Pair, Split, pairs_apart_from, read_pairs, split_pairs
from seqserve_model.made.making import Maker
from seqserve_model.recipe import DataRecipe, TrainingFile

Report = Callable[[str], None]
"""Takes a line about what was read."""


def read_split(data: DataRecipe, report: Report) -> Split:
    """Reads all files of a recipe and divides them; a pair has the largest weight of its files.

    Pairs are then made of the training pairs of the first file, and of the files that say so; they
    have the first one's prefix and a weight of 1. Prefixes are put before the sources once the
    pairs are divided.

    Raises:
        OptionError: A file cannot be read or holds no pair, or there are too few pairs.
    """
    files = _file_of_each_pair(data, report)
    own = {
        name: _read(path, data, report)
        for name, path in (("validation", data.validation_path), ("test", data.test_path))
        if path
    }
    own_pairs = [pair for pairs in own.values() for pair in pairs]
    apart = pairs_apart_from(files, own_pairs)
    if own:
        report(
            f"{len(files) - len(apart):,} training pairs share a sentence with"
            f" {' or '.join(own)} and are left out"
        )
    split = split_pairs(
        [pair for pair in apart if files[pair].held_out],
        validation_pairs=0 if data.validation_path else data.validation_pairs,
        test_pairs=0 if data.test_path else data.test_pairs,
        max_group=data.max_group,
        seed=data.seed,
    )
    # Left out after the draw: what is held out does not depend on it.
    barred = [*own_pairs, *split.validation, *split.test, *_left_out(data, report)]
    others = [pair for pair in apart if not files[pair].held_out]
    training = pairs_apart_from([*split.training, *others], barred)
    first = data.training_files[0]
    times = {file.path: file.made for file in data.training_files} | {first.path: 1}
    sources = [pair for pair in training for _ in range(times[files[pair].path])]
    made = pairs_apart_from(Maker(data.made, sources).pairs(), barred)
    if made:
        report(f"{len(made):,} pairs made of {', '.join(path for path in times if times[path])}")
    prefixed = {
        "training": _prefixed(training, files) + [_with_prefix(pair, first) for pair in made],
        "validation": _prefixed(split.validation, files),
        "test": _prefixed(split.test, files),
    }
    # Without weights an epoch has the order that it always had.
    weights = None
    if data.files:
        weights = [files[pair].weight for pair in training] + [1.0] * len(made)
    return Split(**{**prefixed, **own}, weights=weights)


def _left_out(data: DataRecipe, report: Report) -> list[Pair]:
    return _read(data.left_out_path, data, report) if data.left_out_path else []


def _prefixed(pairs: list[Pair], files: dict[Pair, TrainingFile]) -> list[Pair]:
    return [_with_prefix(pair, files[pair]) for pair in pairs]


def _with_prefix(pair: Pair, file: TrainingFile) -> Pair:
    return pair._replace(source=file.prefix + pair.source)


def _file_of_each_pair(data: DataRecipe, report: Report) -> dict[Pair, TrainingFile]:
    """Reads the training files; a pair of several belongs to the one of the largest weight."""
    files: dict[Pair, TrainingFile] = {}
    for file in data.training_files:
        for pair in _read(file.path, data, report):
            if pair not in files or file.weight > files[pair].weight:
                files[pair] = file
    return files


def _read(path: str, data: DataRecipe, report: Report) -> list[Pair]:
    corpus = read_pairs(
        Path(path),
        source_column=data.source_column,
        target_column=data.target_column,
        max_chars=data.max_chars,
    )
    for line in corpus.report():
        report(line)
    return corpus.pairs
