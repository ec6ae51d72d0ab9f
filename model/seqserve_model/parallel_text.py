"""The parallel text of a recipe: its files read, and divided into training, validation, test.

Validation and test are files of their own or held out of the training files. Either way no
sentence of theirs, on either side, is trained on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from seqserve_model.data import Pair, Split, pairs_apart_from, read_pairs, split_pairs
from seqserve_model.recipe import DataRecipe

Report = Callable[[str], None]
"""Takes a line about what was read."""


def read_split(data: DataRecipe, report: Report) -> Split:
    """Reads all files of a recipe and divides them; a pair has the largest weight of its files.

    Raises:
        OptionError: A file cannot be read or holds no pair, or there are too few pairs.
    """
    weights: dict[Pair, float] = {}
    for file in data.training_files:
        for pair in _read(file.path, data, report):
            weights[pair] = max(file.weight, weights.get(pair, 0.0))
    own = {
        name: _read(path, data, report)
        for name, path in (("validation", data.validation_path), ("test", data.test_path))
        if path
    }
    apart = pairs_apart_from(weights, [pair for pairs in own.values() for pair in pairs])
    if own:
        report(
            f"{len(weights) - len(apart):,} training pairs share a sentence with"
            f" {' or '.join(own)} and are left out"
        )
    split = split_pairs(
        apart,
        validation_pairs=0 if data.validation_path else data.validation_pairs,
        test_pairs=0 if data.test_path else data.test_pairs,
        max_group=data.max_group,
        seed=data.seed,
    )
    # Without weights an epoch has the order that it always had.
    weighted = [weights[pair] for pair in split.training] if data.files else None
    return dataclasses.replace(split, **own, weights=weighted)


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
