"""The parallel text of a recipe: its files read, and divided into training, validation, test.

Validation and test pairs come from separate files, or are held out of the training files. Either
way the training sees none of their sentences, on either side.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from seqserve_model.data import Pair, Split, pairs_apart_from, read_pairs, split_pairs
from seqserve_model.recipe import DataRecipe, TrainingFile

Report = Callable[[str], None]
"""Receives a line about what was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The pairs of a recipe's files, without prefixes."""

    files: dict[Pair, TrainingFile]
    """The file of each pair, the one of the largest weight if several have it."""
    training: list[Pair]
    held_out: dict[str, list[Pair]]
    """``validation`` and ``test``."""
    barred: list[Pair]
    """Pairs that share no sentence with training ones."""

    def without_held_out(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Lists the pairs that may be trained on."""
        return pairs_apart_from(pairs, self.barred)


def read_split(data: DataRecipe, report: Report) -> Split:
    """Reads and divides the files of a recipe, and puts prefixes before the sources."""
    division = divide(data, report)
    files, training = division.files, division.training
    own = {name for name in ("validation", "test") if getattr(data, f"{name}_path")}
    augmented: list[Pair] = []
    if data.augmented_path:
        augmented = division.without_held_out(_read(data.augmented_path, data, report))
    # Without weights an epoch has the order that it always had.
    weights = [files[pair].weight for pair in training] + [1.0] * len(augmented)
    return Split(
        training=_prefixed(training, files) + augmented,
        **{
            name: pairs if name in own else _prefixed(pairs, files)
            for name, pairs in division.held_out.items()
        },
        weights=weights if data.files else None,
    )


def divide(data: DataRecipe, report: Report) -> Division:
    """Reads and divides the files of a recipe, without the augmented pairs."""
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
    left_out = _read(data.left_out_path, data, report) if data.left_out_path else []
    barred = [*own_pairs, *split.validation, *split.test, *left_out]
    others = [pair for pair in apart if not files[pair].held_out]
    return Division(
        files=files,
        training=pairs_apart_from([*split.training, *others], barred),
        held_out={"validation": split.validation, "test": split.test, **own},
        barred=barred,
    )


def _prefixed(pairs: list[Pair], files: dict[Pair, TrainingFile]) -> list[Pair]:
    return [pair._replace(source=files[pair].prefix + pair.source) for pair in pairs]


def _file_of_each_pair(data: DataRecipe, report: Report) -> dict[Pair, TrainingFile]:
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
