"""Parallel text: reads sentence pairs from TSV and keeps some apart for validation and test.

A line is source, target and further columns that are ignored, separated by TAB; the file may be
gzip or bzip2. A bad line is counted and reported, it never ends a training.

Held-out pairs share no sentence with the training data, on either side. Sentences that are equal
once case and punctuation are dropped count as one; pairs that share one are linked, and a linked
group (a connected component of the graph of sentences) is held out as a whole or not at all.
"""

import bz2
import codecs
import contextlib
import gzip
import random
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, cast

from seqserve.documents.plain_text import fault_of
from seqserve.errors import OptionError
from seqserve.files import written_whole


class Pair(NamedTuple):
    """A source sentence and its translation."""

    source: str
    target: str


class BadLine(NamedTuple):
    """A line that could not be used, and why."""

    number: int
    reason: str


@dataclass(slots=True, kw_only=True)
class Corpus:
    """The pairs of a file and what was wrong with its other lines."""

    path: Path
    pairs: list[Pair] = field(default_factory=list)
    bad_lines: list[BadLine] = field(default_factory=list)

    def report(self, shown: int = 5) -> list[str]:
        """Describes what was read, with the first bad lines as ``file:line: reason``."""
        lines = [f"{self.path}:{bad.number}: {bad.reason}" for bad in self.bad_lines[:shown]]
        total = f"{self.path}: {len(self.pairs):,} pairs read"
        if self.bad_lines:
            total += f", {len(self.bad_lines):,} bad lines skipped"
        return [*lines, total]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A corpus in three parts without a sentence in common."""

    training: list[Pair]
    validation: list[Pair]
    test: list[Pair]
    weights: list[float] | None = None
    """How often an epoch has each training pair, on average; None for once."""


def normalise(text: str) -> str:
    """Composes characters (NFC) and collapses white space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def sentence_key(text: str) -> str:
    """Reduces a sentence to what makes it the same sentence: letters and digits, case folded."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    key = " ".join("".join(c if c.isalnum() else " " for c in folded).split())
    return key or text


def read_pairs(
    path: Path, *, source_column: int = 0, target_column: int = 1, max_chars: int = 1_000
) -> Corpus:
    """Reads the pairs of a TSV file, plain, gzip or bzip2.

    Columns are counted from 0; a sentence of more than ``max_chars`` makes a line bad.
    """
    corpus = Corpus(path=path)
    try:
        with open_lines(path) as lines:
            for number, line in enumerate(lines, start=1):
                text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                pair = _parse(text, source_column, target_column, max_chars)
                if isinstance(pair, Pair):
                    corpus.pairs.append(pair)
                else:
                    corpus.bad_lines.append(BadLine(number, pair))
    except (OSError, EOFError) as error:
        raise OptionError(
            f"{cannot_be_read(path, error)}; `seqserve prepare` makes this file, and data.path of"
            " a recipe, or --data, names it"
        ) from None
    if not corpus.pairs:
        first = "".join(f": line {number} {reason}" for number, reason in corpus.bad_lines[:1])
        raise OptionError(
            f"{path}: holds no pair{first}; a line is source TAB target in UTF-8, in columns "
            f"{source_column} and {target_column}"
        )
    return corpus


def cannot_be_read(path: Path, error: Exception) -> str:
    """Says which file cannot be read and why, without the number of the error."""
    return f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"


@contextlib.contextmanager
def open_lines(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file or a pipe for reading lines as bytes, unpacking gzip and bzip2."""
    with path.open("rb") as file:
        # A pipe cannot be read twice.
        magic = file.peek(3)
        if magic.startswith(b"\x1f\x8b"):
            with gzip.open(file) as unpacked:
                yield cast(IO[bytes], unpacked)
        elif magic.startswith(b"BZh"):
            with bz2.open(file) as unpacked:
                yield unpacked
        else:
            yield file


def split_pairs(
    pairs: Iterable[Pair], *, validation_pairs: int, test_pairs: int, max_group: int, seed: int
) -> Split:
    """Keeps pairs apart for validation and test that share no sentence with the rest.

    Groups of linked pairs are drawn at random and held out whole; of each source in a group only
    the first pair is kept. Larger groups (very short sentences with dozens of translations) stay
    in the training data: holding them out would take much of it away for a few test sentences.
    ``max_group`` is the largest group, in pairs, that may be held out.
    """
    unique = list(dict.fromkeys(pairs))
    groups = list(_linked_groups(unique))
    random.Random(seed).shuffle(groups)
    small = (group for group in groups if len(group) <= max_group)
    validation, drawn = _draw(small, unique, validation_pairs)
    test, drawn_next = _draw(small, unique, test_pairs)
    held_out = drawn | drawn_next
    training = [pair for i, pair in enumerate(unique) if i not in held_out]
    if len(validation) < validation_pairs or len(test) < test_pairs or not training:
        raise OptionError(
            f"data: too few pairs ({len(unique):,}, in {len(groups):,} groups without a common "
            f"sentence) to hold out {validation_pairs:,} for validation and {test_pairs:,} for "
            "test; lower data.validation_pairs and data.test_pairs"
        )
    return Split(training=training, validation=validation, test=test)


def pairs_apart_from(pairs: Iterable[Pair], held_out: Sequence[Pair]) -> list[Pair]:
    """Lists the pairs that share no sentence with held-out ones, on either side."""
    taken = {(side, sentence_key(text)) for pair in held_out for side, text in enumerate(pair)}
    return [
        pair
        for pair in pairs
        if not any((side, sentence_key(text)) in taken for side, text in enumerate(pair))
    ]


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Writes pairs as TSV, all or none."""
    with written_whole(path, "w", newline="\n", option="") as file:
        file.writelines(f"{pair.source}\t{pair.target}\n" for pair in pairs)


def _parse(line: bytes, source_column: int, target_column: int, max_chars: int) -> Pair | str:
    text = line.decode(errors="surrogateescape")
    if fault := fault_of(text):
        return fault
    columns = text.rstrip("\r\n").split("\t")
    if len(columns) <= max(source_column, target_column):
        return f"has {len(columns)} columns, needs {max(source_column, target_column) + 1}"
    pair = Pair(normalise(columns[source_column]), normalise(columns[target_column]))
    if not pair.source or not pair.target:
        return "has an empty source" if not pair.source else "has an empty target"
    if max(map(len, pair)) > max_chars:
        return f"is longer than {max_chars} characters"
    return pair


def _draw(
    groups: Iterator[list[int]], pairs: list[Pair], wanted: int
) -> tuple[list[Pair], set[int]]:
    first_of_source: dict[str, Pair] = {}
    drawn: set[int] = set()
    while len(first_of_source) < wanted and (group := next(groups, None)):
        drawn.update(group)
        for i in group:
            first_of_source.setdefault(sentence_key(pairs[i].source), pairs[i])
    return list(first_of_source.values())[:wanted], drawn


def _linked_groups(pairs: list[Pair]) -> Iterator[list[int]]:
    parents = list(range(len(pairs)))

    def root(i: int) -> int:
        while parents[i] != i:
            parents[i] = i = parents[parents[i]]
        return i

    first_seen: dict[tuple[int, str], int] = {}
    for i, pair in enumerate(pairs):
        for side, text in enumerate(pair):
            parents[root(i)] = root(first_seen.setdefault((side, sentence_key(text)), i))
    groups: dict[int, list[int]] = {}
    for i in range(len(pairs)):
        groups.setdefault(root(i), []).append(i)
    yield from groups.values()
