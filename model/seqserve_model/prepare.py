"""``seqserve prepare``: turns what Tatoeba and manythings.org offer into one TSV file to train on.

Each line of the result is source TAB target TAB attribution: composed to NFC, white space
collapsed, exact duplicates left out, case and punctuation kept.

Formats read: the archives of https://www.manythings.org/anki (``deu.txt`` or ``deu-eng.zip``:
English TAB other language TAB attribution), and the exports of https://tatoeba.org/downloads
(sentences: id TAB language TAB text [TAB user ...]; links: id TAB id), plain, gzip or bzip2.

It also writes the training pairs of a recipe, the augmented ones too, and can have a
teacher translate their sources: what a large model writes, a small one learns more easily.
"""

import contextlib
import gzip
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from seqserve.errors import OptionError
from seqserve.files import written_whole
from seqserve.options import flag_of, option, parse
from seqserve_model.data import Pair, normalise
from seqserve_model.options import SearchOptions
from seqserve_model.parallel_text import (
    LARGEST,
    Row,
    number_pairs,
    read_manythings,
    read_split,
    read_tatoeba,
)
from seqserve_model.recipe import Recipe

_ABOUT = """\
Makes one TSV file of sentence pairs to train on.

ARCHIVES come from https://www.manythings.org/anki. https://tatoeba.org/downloads has the sentences
of each language and the links of each pair. Detailed sentences name their users, whom the result
then credits. Two concatenated bzip2 files are one file.

examples:
  seqserve prepare deu-eng.zip --out data/tatoeba-eng-deu.tsv.gz
  cat eng_sentences_detailed.tsv.bz2 deu_sentences_detailed.tsv.bz2 > sentences.tsv.bz2
  seqserve prepare --sentences sentences.tsv.bz2 --links eng-deu_links.tsv.bz2 \\
    --out data/tatoeba-eng-deu.tsv.gz
  seqserve prepare --numbers 20000 --out data/numbers.tsv
  seqserve prepare --recipe model/configs/en-de.toml --out data/en-de-training.tsv
  seqserve prepare --recipe model/configs/en-de.toml --teacher models/teacher/1 --beam-size 5 \\
    --nearest 60 --out data/en-de-distilled.tsv.gz"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions(SearchOptions):
    """Options of ``seqserve prepare``."""

    out: Path = option(help="TSV file to write; gzip if its name ends in .gz.")
    sentences: Path | None = option(
        None,
        help="Sentences of Tatoeba's exports, of both languages in one file: id, language, text"
        " and, in the detailed ones, user; plain, gzip or bzip2.",
        group="from Tatoeba",
    )
    links: Path | None = option(
        None,
        help="Links between them: id of the source, id of the target; plain, gzip or bzip2.",
        group="from Tatoeba",
    )
    source_language: str = option(
        "eng", help="Language of the sources, as Tatoeba writes it.", group="from Tatoeba"
    )
    target_language: str = option(
        "deu", help="Language of the targets, as Tatoeba writes it.", group="from Tatoeba"
    )
    numbers: int | None = option(
        None,
        help="Write this many pairs of digits and number words instead, a task that needs no data.",
        minimum=1,
        maximum=LARGEST,
    )
    recipe: Path | None = option(
        None,
        help="Write the training pairs of this recipe, including the augmented ones.",
        group="from a recipe",
    )
    teacher: Path | None = option(
        None,
        help="Training run or artifact that translates the recipe's sources; its translations"
        " replace the targets.",
        group="from a recipe",
    )
    nearest: float | None = option(
        None,
        help="Take the hypothesis of the teacher's beam nearest to the recipe's target, instead"
        " of the one with the best score; if its chrF is below this, take the target itself.",
        minimum=0,
        maximum=100,
    )
    threads: int = option(1, help="Threads of the teacher.", minimum=1)
    archives: list[str] = option([], help="Text files or zips of manythings.org.", positional=True)


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of read, dropped and written rows."""

    read: int = 0
    empty: int = 0
    duplicates: int = 0
    written: int = 0

    def __str__(self) -> str:
        return (
            f"{self.read:,} pairs read, {self.empty:,} empty and {self.duplicates:,} repeated "
            f"left out, {self.written:,} written"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve prepare``."""
    argv = sys.argv[1:] if argv is None else argv
    options = parse(PrepareOptions, argv, prog="seqserve prepare", description=_ABOUT)
    counts = prepare(_rows(options), options.out)
    _say(f"{options.out}: {counts}")
    return 0


def prepare(rows: Iterable[Row], out: Path) -> Counts:
    """Cleans rows and writes them as TSV; raises an error without rows."""
    counts = Counts()
    with _created(out) as file:
        for row in _clean(rows, counts):
            file.write("\t".join(row).rstrip("\t") + "\n")
        if not counts.written:
            raise OptionError(f"{out}: nothing to write; {counts}")
    return counts


def _rows(options: PrepareOptions) -> Iterator[Row]:
    tatoeba = options.sentences is not None or options.links is not None
    numbers, recipe = options.numbers is not None, options.recipe is not None
    if sum((tatoeba, numbers, recipe, bool(options.archives))) != 1:
        raise OptionError(
            "name archives of manythings.org, or --sentences and --links of Tatoeba, or --numbers,"
            " or --recipe"
        )
    if options.teacher and not recipe:
        raise OptionError("--teacher: needs --recipe, whose sources it translates")
    if options.recipe:
        pairs = read_split(Recipe.load(options.recipe).data, _say).training
        translated = _by_teacher(pairs, options) if options.teacher else iter(pairs)
        return ((pair.source, pair.target, "") for pair in translated)
    if options.numbers is not None:
        return ((pair.source, pair.target, "") for pair in number_pairs(options.numbers))
    if options.archives:
        return (row for path in options.archives for row in read_manythings(Path(path)))
    if options.sentences is None or options.links is None:
        raise OptionError("--sentences and --links need each other")
    return read_tatoeba(
        options.sentences, options.links, options.source_language, options.target_language
    )


def _by_teacher(pairs: Sequence[Pair], options: PrepareOptions) -> Iterator[Pair]:
    # Not above: the other rows need no torch.
    from seqserve_model.evaluate import is_artifact
    from seqserve_model.teacher import taught

    assert options.teacher is not None, "the caller has checked it"
    search = options.search()
    if search and not is_artifact(options.teacher):
        raise OptionError(
            f"{flag_of(next(iter(search)))}: a run translates with greedy search; export it, and"
            " name the artifact as --teacher"
        )
    if options.nearest is not None and (options.beam_size or 1) < 2:
        raise OptionError("--nearest: chooses of several hypotheses; set --beam-size to 2 or more")
    minimum = options.nearest
    return taught(pairs, options.teacher, _say, threads=options.threads, minimum=minimum, **search)


def _clean(rows: Iterable[Row], counts: Counts) -> Iterator[Row]:
    seen: set[tuple[str, str]] = set()
    for row in rows:
        counts.read += 1
        source, target, note = map(normalise, row)
        if not source or not target:
            counts.empty += 1
        elif (source, target) in seen:
            counts.duplicates += 1
        else:
            seen.add((source, target))
            counts.written += 1
            yield source, target, note


@contextlib.contextmanager
def _created(path: Path) -> Iterator[IO[str]]:
    if path.suffix != ".gz":
        with written_whole(path, "w", newline="\n") as text:
            yield text
        return
    with (
        written_whole(path) as file,
        # No name and no time in the header: equal pairs give equal files.
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as archive,
        io.TextIOWrapper(cast(IO[bytes], archive), encoding="utf-8", newline="\n") as text,
    ):
        yield text


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
