"""``seqserve translate``: translates documents, and keeps all that is not their text.

Each passage of a document is a source of a bulk call, which the server divides into sentences.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipInfo

from seqserve import Client, errors
from seqserve.arguments import BULK_CONCURRENCY, GenerateOptions
from seqserve.command.connection import GenerateCallOptions
from seqserve.command.decoding import options_outside
from seqserve.command.progress import Progress, is_terminal
from seqserve.command.run.document_run import DocumentRun
from seqserve.command.run.document_writer import (
    DocumentWriter,
    archive_writer,
    document_writer,
)
from seqserve.command.run.source_file import STANDARD_INPUT, SourceFile, can_be_read_twice
from seqserve.documents.archive import opened, rewrite, text_of
from seqserve.documents.formats import (
    ARCHIVES,
    Format,
    format_of,
    is_named_as_document,
    parser_of,
)
from seqserve.documents.passage import Lines, ParseError, Parser, Passage
from seqserve.options import option, parse

_EPILOG = """\
The suffix of a file tells its format; --format names it where the suffix is another one:
  text       .txt, or no suffix: each line, divided into sentences
  markdown   .md
  html       .html, .htm, .xhtml
  srt, vtt   .srt, .vtt: subtitles
  jsonl      .jsonl: the field that --field names
  json       .json: all texts, with messages of ICU
  po         .po, .pot: translations that are empty
  android    .xml: strings of an Android app
  strings    .strings: strings of an app of Apple's systems
  xliff      .xliff, .xlf: sources without a target, versions 1.2 and 2
  csv        .csv, .tsv: the column that --column names
  docx       .docx
  odt        .odt
  epub       .epub; these three need --out

Markup, code, times, placeholders of programs such as {name} and %s, what has no letter, line ends,
encoding and byte order mark stay as they are. Without FILES it translates standard input to
standard output.

While it writes OUT, translations are kept in a hidden file beside it. After a break, the same
command takes them from there and goes on. OUT is there when it is complete.

Options of `seqserve generate` for search, sampling, lengths and constraints apply too, such as
--length-penalty and --suppress-tokens; `seqserve generate --help` explains them.

A passage that fails stays as it is; standard error reports its line, and the exit status is 1. An
error that concerns every passage (no such model, a wrong option, no permission) ends the run.

examples:
  seqserve translate letter.txt -o brief.txt
  seqserve translate docs/*.md -o docs-de
  seqserve translate film.srt -o film.de.srt --beam-size 5
  seqserve translate letter.txt -o brief.txt --glossary house
  seqserve translate reviews.jsonl --field text -o reviews.de.jsonl
  seqserve translate goods.csv --column description -o goods.de.csv
  curl -s https://example.com | seqserve translate --format html > page.html"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateOptions(GenerateCallOptions):
    """The options of ``seqserve translate``."""

    files: list[Path] = option(
        [], help="Files to translate; by default, or for -, standard input.", positional=True
    )
    out: Path | None = option(
        None,
        help="File to write, or folder for several files; by default standard output.",
        short="-o",
    )
    format: Format | None = option(None, help="Format of all files, whatever their suffix.")
    field: str | None = option(None, help="Field of JSON lines to translate, in its place.")
    column: str | None = option(
        None, help="Column of CSV to translate, in its place; the first row has its name."
    )
    join_lines: bool = option(
        False, help="Translate each paragraph of plain text as one line: for lines of fixed width."
    )
    encoding: str = option("utf-8", help="Encoding of files without a byte order mark.")
    timeout_s: float | None = option(
        None,
        help="Seconds for each file, with retries; inf for no limit, which is the default.",
        minimum=0.001,
        group="connection",
    )
    concurrency: int = option(
        BULK_CONCURRENCY,
        help="Maximum number of passages under way: fewer leave more room for others.",
        minimum=1,
        maximum=1024,
    )

    def __post_init__(self) -> None:
        """Checks that the options go together."""
        if len(self.files) > 1:
            if self.out is None:
                raise errors.OptionError("--out: several files need a folder to be written to")
            if is_named_as_document(self.out) and not self.out.is_dir():
                reason = "is named as a file, and several files need a folder"
                raise errors.OptionError(f"--out: {self.out} {reason}")
        if (self.decoding().get("num_hypotheses") or 1) > 1:
            raise errors.OptionError("--num-hypotheses: a document has one translation")

    def call(self) -> GenerateOptions:
        """Returns the options of each passage."""
        call = self.keywords()
        call["segmentation"] = call.get("segmentation") or "sentences"
        return call

    def output_of(self, file: Path) -> Path | None:
        """Returns where the translation of a file goes; None for standard output."""
        if self.out is None:
            return None
        return self.out / file.name if len(self.files) > 1 or self.out.is_dir() else self.out


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status, which is 1 if a passage failed."""
    options = parse(
        TranslateOptions,
        argv,
        prog="seqserve translate",
        description="Translates documents, and keeps all that is not their text.",
        epilog=_EPILOG,
        hidden=options_outside("languages", "beam search"),
    )
    files = options.files or [STANDARD_INPUT]
    documents = [(file, options.format or format_of(file)) for file in files]
    _check_outputs(options, documents)
    failed = 0
    with options.connect(math.inf) as client:
        for file, kind in documents:
            failed += _translate(client, options, file, kind)
    return 1 if failed else 0


def _check_outputs(options: TranslateOptions, documents: list[tuple[Path, Format]]) -> None:
    """Refuses two files in one place, a file in its own, and one named as of another format."""
    places: set[Path] = set()
    for file, kind in documents:
        place = options.output_of(file)
        if place is None:
            continue
        if place in places or (place.exists() and file.exists() and place.samefile(file)):
            raise errors.OptionError(f"--out: {place} would be overwritten; choose another place")
        if not options.format and is_named_as_document(place) and format_of(place) is not kind:
            source = "standard input" if file == STANDARD_INPUT else str(file)
            reason = f"is named as {format_of(place).value}, and {source} is taken for {kind.value}"
            hint = "a translation has the format of its source, which --format tells"
            raise errors.OptionError(f"--out: {place} {reason}; {hint}")
        places.add(place)


def _translate(client: Client, options: TranslateOptions, file: Path, kind: Format) -> int:
    """Translates a file; returns how many passages failed."""
    parser = parser_of(
        kind, field=options.field, column=options.column, joins_lines=options.join_lines
    )
    is_shown = is_terminal(sys.stderr) and (options.out is not None or not sys.stdout.isatty())
    out = options.output_of(file)
    if kind in ARCHIVES:
        if out is None:
            raise errors.OptionError(f"--out: a file of {kind.value} needs one to be written to")
        return _translate_archive(client, options, file, out, kind, parser, is_shown)
    with closing(SourceFile(file, options.encoding)) as source:
        facts = {**options.call(), "format": kind.value, "encoding": source.encoding}
        with document_writer(out, source, facts) as writer:
            total = None
            if is_shown and can_be_read_twice(file):
                with closing(SourceFile(file, options.encoding)) as again:
                    passages = _passages(parser, again, source.name)
                    total = sum(map(writer.is_sent, passages))
            with closing(
                Progress(sys.stderr, "passages", is_shown=is_shown, total=total)
            ) as progress:
                passages = _passages(parser, source, source.name)
                _run(client, options, writer, progress, passages)
    _report(writer, source.name)
    return writer.failed.count


def _translate_archive(
    client: Client,
    options: TranslateOptions,
    file: Path,
    out: Path,
    kind: Format,
    parser: Parser,
    is_shown: bool,
) -> int:
    """Translates the parts of a document that are text; the others stay to the byte."""
    failed = 0
    with (
        opened(file, str(file)) as source,
        archive_writer(out, {**options.call(), "format": kind.value}) as (archive, journal),
        closing(Progress(sys.stderr, "passages", is_shown=is_shown)) as progress,
    ):

        def written(part: ZipInfo) -> str:
            nonlocal failed
            name = f"{file}: {part.filename}"
            texts: list[str] = []
            writer = DocumentWriter(name, "utf-8", texts.append, journal)
            lines = io.StringIO(text_of(source, part), newline="")
            _run(client, options, writer, progress, _passages(parser, lines, name))
            _report(writer, name)
            failed += writer.failed.count
            return "".join(texts)

        rewrite(source, archive, kind, written)
    return failed


def _run(
    client: Client,
    options: TranslateOptions,
    writer: DocumentWriter,
    progress: Progress,
    passages: Iterator[Passage],
) -> None:
    writer.before_report = progress.clear
    run = DocumentRun(
        client,
        writer,
        progress,
        concurrency=options.concurrency,
        timeout_s=options.timeout_s,
        call=options.call(),
    )
    run.run(passages)


def _report(writer: DocumentWriter, name: str) -> None:
    if writer.failed.count:
        report = f"{writer.failed.count:,} of {writer.count:,} passages failed"
        print(f"seqserve: {name}: {report}: lines {writer.failed}", file=sys.stderr)


def _passages(parser: Parser, lines: Lines, name: str) -> Iterator[Passage]:
    """Reads the passages of a document; an error of its format names the file."""
    try:
        yield from parser(lines)
    except ParseError as error:
        raise errors.OptionError(f"{name}: {error}") from None
