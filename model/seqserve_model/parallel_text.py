"""Parallel text: corpora that pairs are read from, and the files of a recipe, divided.

Corpora are Tatoeba's exports, archives of manythings.org, and numbers in words. Numbers, "427" →
"four hundred twenty-seven", are a task that needs no data and a minute on one core. There is only
one right answer, so it shows that the whole chain works.

A recipe's files become training, validation and test. Validation and test pairs come from separate
files, or are held out of the training files. Either way the training sees none of their sentences,
on either side.
"""

import contextlib
import io
import random
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from seqserve.errors import OptionError
from seqserve_model.data import (
    Pair,
    Split,
    cannot_be_read,
    open_lines,
    pairs_apart_from,
    read_pairs,
    split_pairs,
)
from seqserve_model.recipe import DataRecipe, TrainingFile

Report = Callable[[str], None]
"""Receives a line about what was read."""
Row = tuple[str, str, str]
"""Source, target, attribution."""

_LICENCE = "CC-BY 2.0 (France) Attribution: tatoeba.org"
LARGEST = 999_999

# fmt: off
_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)
# fmt: on
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def read_manythings(path: Path) -> Iterator[Row]:
    """Reads the pairs of a manythings archive: English, the other language, attribution."""
    for line in _lines(path):
        columns = [*line.split("\t"), "", ""]
        yield columns[0], columns[1], columns[2]


def read_tatoeba(sentences: Path, links: Path, source: str, target: str) -> Iterator[Row]:
    """Reads the pairs of Tatoeba's exports that go from one language to another.

    Only the sentences of the two languages are held in memory; the links are read as they come.
    """
    sides: dict[str, dict[str, tuple[str, str]]] = {source: {}, target: {}}
    for line in _lines(sentences):
        columns = [*line.split("\t"), "", "", ""]
        if columns[1] in sides:
            sides[columns[1]][columns[0]] = columns[2], columns[3]
    for language, found in sides.items():
        if not found:
            raise OptionError(
                f"{sentences}: has no sentence in {language!r}; Tatoeba's codes "
                "have three letters, such as eng and deu"
            )
    for line in _lines(links):
        first, _, second = line.partition("\t")
        one, other = sides[source].get(first), sides[target].get(second.split("\t")[0])
        if one and other:
            note = f"{_LICENCE} {_credit(first, one[1])} & {_credit(second, other[1])}"
            yield one[0], other[0], note


def spell(number: int) -> str:
    """Writes a number between 0 and 999,999 in English words."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, rest = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_SMALL[rest]}" if rest else "")
    unit, name = (1_000, "thousand") if number >= 1_000 else (100, "hundred")
    count, rest = divmod(number, unit)
    return f"{spell(count)} {name}" + (f" {spell(rest)}" if rest else "")


def number_pairs(count: int, seed: int = 1) -> Iterator[Pair]:
    """Draws different numbers from 1 on: all of the short ones, where count is large.

    Of 20,000 some 1,000 have up to three digits, 5,100 four, 7,200 five and 6,700 six.
    """
    random_ = random.Random(seed)
    seen: set[int] = set()
    while len(seen) < min(count, LARGEST):
        # Not 0: no other number has its word, and one pair teaches nothing.
        number = random_.randrange(1, 10 ** random_.randint(1, 6))
        if number not in seen:
            seen.add(number)
            yield Pair(str(number), spell(number))


def _credit(number: str, user: str) -> str:
    return f"#{number}" if user in ("", "\\N") else f"#{number} ({user})"


def _lines(path: Path) -> Iterator[str]:
    try:
        # Invalid UTF-8 is marked, not fatal: one bad line must not cost the others.
        with (
            _open(path) as file,
            io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace") as text,
        ):
            for number, line in enumerate(text, 1):
                if "\0" in line:
                    raise OptionError(f"{path}: is not text: line {number} has a byte of zero")
                yield line.rstrip("\r\n")
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise OptionError(cannot_be_read(path, error)) from None


@contextlib.contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    # A pipe is not asked: it can be opened only once.
    is_zip = path.is_file() and zipfile.is_zipfile(path)
    if path.suffix == ".zip" and path.is_file() and not is_zip:
        raise OptionError(f"{path}: is not a zip archive, or damaged; download it again")
    if is_zip:
        with zipfile.ZipFile(path) as archive:
            texts = [n for n in archive.namelist() if n.endswith(".txt") and n[0] != "_"]
            if len(texts) != 1:
                raise OptionError(f"{path}: holds {len(texts)} texts where one is expected")
            with archive.open(texts[0]) as file:
                yield file
        return
    with open_lines(path) as file:
        yield file


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
        augmented = division.without_held_out(_pairs_of(data.augmented_path, data, report))
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
        name: _pairs_of(path, data, report)
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
    left_out = _pairs_of(data.left_out_path, data, report) if data.left_out_path else []
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
        for pair in _pairs_of(file.path, data, report):
            if pair not in files or file.weight > files[pair].weight:
                files[pair] = file
    return files


def _pairs_of(path: str, data: DataRecipe, report: Report) -> list[Pair]:
    corpus = read_pairs(
        Path(path),
        source_column=data.source_column,
        target_column=data.target_column,
        max_chars=data.max_chars,
    )
    for line in corpus.report():
        report(line)
    return corpus.pairs
