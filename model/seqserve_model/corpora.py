"""Sources of pairs: Tatoeba's exports, archives of manythings.org, numbers in words.

Numbers, "427" → "four hundred twenty-seven", are a task that needs no data and a minute on one
core. There is only one right answer, so it shows that the whole chain works.
"""

import contextlib
import io
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from seqserve.errors import OptionError
from seqserve_model.data import Pair, cannot_be_read, open_lines

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
