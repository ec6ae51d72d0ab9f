"""``seqserve translate``: translates documents, and keeps all that is not their text.

Each passage of a document is a source of a bulk call, which the server divides into sentences.
"""

import io
import math
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zipfile import ZipInfo

from seqserve import Client, errors
from seqserve.arguments import BULK_CONCURRENCY, GenerateOptions
from seqserve.command.connection import GenerateCallOptions, options_outside
from seqserve.command.document_files import (
    STANDARD_INPUT,
    SourceFile,
    archive_output,
    can_be_read_twice,
    document_output,
    name_of,
    write_reports,
)
from seqserve.command.document_run import DocumentRun
from seqserve.command.progress import Progress, is_terminal
from seqserve.command.writers import DocumentWriter
from seqserve.documents.archive import format_of_file, opened, parser_within, rewrite, text_of
from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.formats import (
    ARCHIVES,
    PAGES,
    Format,
    format_of,
    is_named_as_document,
    parser_of,
)
from seqserve.documents.passage import Lines, ParseError, Parser, Passage
from seqserve.documents.report import Report
from seqserve.options import option, parse

# They are translated line by line, so nothing can be read wrongly where it is written.
_STREAMED = {Format.TEXT, Format.JSON_LINES}
_ABOUT = """\
Translates the text of documents and keeps everything else.

The suffix of a file tells its format; --format names it where the suffix is another one:
  text        .txt, or no suffix: each line, divided into sentences
  markdown    .md; html: .html, .htm, .xhtml; srt, vtt: subtitles
  jsonl       .jsonl: the field that --field names
  json, arb   all texts, with messages of ICU; not what keys with @ have in .arb
  po          .po, .pot: translations that are empty
  android, strings, properties, resx
              texts of apps: .xml of Android, .strings of Apple, Java's, .resx and .resw of .NET
  xliff       .xliff, .xlf: sources without a target, versions 1.2 and 2
  csv         .csv, .tsv: the column that --column names
  docx, pptx, xlsx, odt, odp, ods, epub
              office documents and books, which need --out

Markup, code, times, placeholders such as {name} and %s, texts without a letter, line endings,
encoding and byte order mark stay. Without FILES it translates standard input to standard output.

While it works, a hidden file in the folder of OUT keeps the translations. After a break, run the
same command again to continue. OUT appears when it is complete.

Options of `seqserve generate` for search, sampling, lengths and constraints apply too, such as
--length-penalty and --suppress-tokens; `seqserve generate --help` explains them.

Standard error tells how many passages of each file were translated, copied on purpose and left;
--report writes each text that was left, or whose numbers differ, and why. A passage that fails
stays as it is. If a text was left, the exit status is 1. An error that concerns every passage (no
such model, a wrong option, no permission) ends the run.

examples:
  seqserve translate docs/*.md -o docs-de
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
    report: Path | None = option(
        None,
        help="File for a report as JSON: what was translated, copied and left, and why.",
        has_variable=False,
    )
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
        help="Maximum number of passages in flight: fewer leave more room for others.",
        minimum=1,
        maximum=1024,
    )

    def __post_init__(self) -> None:
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
    """Runs the command and returns its exit status, which is 1 if a text was left."""
    options = parse(
        TranslateOptions,
        argv,
        prog="seqserve translate",
        description=_ABOUT,
        hidden=options_outside("languages", "beam search"),
    )
    files = options.files or [STANDARD_INPUT]
    documents = [(file, options.format or format_of_file(file)) for file in files]
    _check_outputs(options, documents)
    reports: list[tuple[Path, Report]] = []
    try:
        with options.connect(math.inf) as client:
            for file, kind in documents:
                reports.append((file, Report()))
                _Translator(client, options, reports[-1][1]).translate(file, kind)
                print(f"seqserve: {name_of(file)}: {reports[-1][1]}", file=sys.stderr)
    finally:
        if options.report:
            write_reports(options.report, reports)
    return 1 if any(report.left for _, report in reports) else 0


def _check_outputs(options: TranslateOptions, documents: list[tuple[Path, Format]]) -> None:
    places: set[Path] = set()
    for file, kind in documents:
        place = options.output_of(file)
        if place is None:
            continue
        if place in places or (place.exists() and file.exists() and place.samefile(file)):
            raise errors.OptionError(f"--out: {place} would be overwritten; choose another place")
        if not options.format and is_named_as_document(place) and format_of(place) is not kind:
            name = name_of(file)
            reason = f"is named as {format_of(place).value}, and {name} is taken for {kind.value}"
            hint = "a translation has the format of its source, which --format tells"
            raise errors.OptionError(f"--out: {place} {reason}; {hint}")
        places.add(place)


@dataclass(frozen=True, slots=True)
class _Translator:
    client: Client
    options: TranslateOptions
    report: Report

    def translate(self, file: Path, kind: Format) -> None:
        out, options = self.options.output_of(file), self.options
        parser = parser_of(
            kind,
            field=options.field,
            column=options.column,
            joins_lines=options.join_lines,
            languages=self._languages() if kind in PAGES else UNKNOWN,
        )
        facts = {**options.call(), "format": kind.value}
        if kind in ARCHIVES:
            self._archive(file, kind, parser, facts)
            return
        is_shown = is_terminal(sys.stderr) and (out is not None or not sys.stdout.isatty())
        opened_file = partial(SourceFile, file, options.encoding, kind)
        with closing(opened_file()) as source:
            facts["encoding"] = source.encoding
            with document_output(out, source, facts) as (write, journal):
                label, encoding = f"{source.name}: line", source.encoding
                writer = DocumentWriter(label=label, encoding=encoding, output=write)
                writer.errors, writer.journal = source.errors, journal
                total = None
                if is_shown and can_be_read_twice(file):
                    with closing(opened_file()) as again:
                        total = sum(map(writer.is_sent, _passages(parser, again, source.name)))
                with closing(_progress(is_shown, total)) as progress:
                    is_checked = kind not in _STREAMED
                    self._run(writer, progress, parser, source, source.name, is_checked)

    def _languages(self) -> Languages:
        """Returns the languages of a page and its translation, which the model may tell."""
        options, call = self.options, self.options.call()
        told = Languages(call.get("source_language") or "", call.get("target_language") or "")
        if told.target:
            return told
        # Without them a page is translated all the same, and its language stays.
        with suppress(errors.CallError):
            model = self.client.model(options.model, options.model_version)
            known = (model.source_languages, model.target_languages)
            return Languages(*(codes[0] if len(codes) == 1 else "" for codes in known))
        return told

    def _archive(self, file: Path, kind: Format, parser: Parser, facts: dict[str, object]) -> None:
        if (out := self.options.output_of(file)) is None:
            raise errors.OptionError(f"--out: a file of {kind.value} needs one to be written to")
        with (
            opened(file, str(file)) as source,
            archive_output(out, facts) as (archive, journal),
            closing(_progress(is_terminal(sys.stderr))) as progress,
        ):
            parser = parser_within(source, kind, parser)

            def written(part: ZipInfo) -> str:
                texts: list[str] = []
                name = f"{file}: {part.filename}"
                label = f"{name}: line"
                writer = DocumentWriter(label=label, encoding="utf-8", output=texts.append)
                writer.journal, writer.part = journal, part.filename
                lines = io.StringIO(text_of(source, part), newline="")
                self._run(writer, progress, parser, lines, name)
                return "".join(texts)

            rewrite(source, archive, kind, written)

    def _run(
        self,
        writer: DocumentWriter,
        progress: Progress,
        parser: Parser,
        lines: Lines,
        name: str,
        is_checked: bool = True,
    ) -> None:
        texts: list[str] = []
        write = writer.output

        def checked(text: str) -> None:
            if is_checked:
                texts.append(text)
            write(text)

        writer.output, writer.before_report, writer.totals = checked, progress.clear, self.report
        DocumentRun(
            client=self.client,
            writer=writer,
            progress=progress,
            concurrency=self.options.concurrency,
            timeout_s=self.options.timeout_s,
            call=self.options.call(),
        ).run(_passages(parser, lines, name))
        progress.clear()
        if writer.failed.count:
            report = f"{writer.failed.count:,} of {writer.count:,} passages failed"
            print(f"seqserve: {name}: {report}: {writer.failed.of('line')}", file=sys.stderr)
        self.report.check(parser(io.StringIO("".join(texts), newline="")), writer.part)


def _progress(is_shown: bool, total: int | None = None) -> Progress:
    return Progress(sys.stderr, "passages", is_shown=is_shown, total=total)


def _passages(parser: Parser, lines: Lines, name: str) -> Iterator[Passage]:
    try:
        yield from parser(lines)
    except ParseError as error:
        raise errors.OptionError(f"{name}: {error}") from None
