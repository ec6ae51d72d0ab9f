"""``seqserve corpus``: generates from every text of a corpus, without a server."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from seqserve.command.connection import NEED_JSON, DecodingOptions, options_outside
from seqserve.command.progress import Progress, is_terminal
from seqserve.documents.formats import Format, format_of, is_named_as_document
from seqserve.errors import OptionError
from seqserve.language_codes import AUTO
from seqserve.options import flag_of, option, parse

if TYPE_CHECKING:
    from seqserve_server.corpus.corpus_file import CorpusFile
    from seqserve_server.corpus.engine import EngineSettings, Pool

_EPILOG = """\
It starts its own engines and needs no server. The suffix of CORPUS determines the format:
  text      each line is a text; its answer is the line of OUT with the same number
  jsonl     .jsonl, .ndjson: the field --field of each object is a text; OUT has the same objects,
            each with its answer in the field --into
  parquet   .parquet: a column --field of texts; OUT has one more column. It needs pyarrow

While it runs, a hidden file in the folder of OUT keeps the answers. After any break, kill -9
included, the same command goes on after the last answer. OUT appears when it is complete, with each
text exactly once, in the order of CORPUS. If texts of CORPUS have changed, the command answers all
texts from the first changed one again.

If a text fails, OUT has an empty line or null for it; OUT.failed lists the numbers of these lines
with the reasons, and the exit status is 1. A wrong option ends the run.

A small model gets one process for each core, a large one a single process with all cores;
--processes and --workers change this. --return-scores adds a field with the score of each answer.

Options of `seqserve generate` for search, sampling, lengths and constraints apply too, such as
--length-penalty and --suppress-tokens; `seqserve generate --help` explains them.

examples:
  seqserve corpus english.txt german.txt
  seqserve corpus english.txt german.txt --model en-de --beam-size 4
  seqserve corpus reviews.jsonl reviews.de.jsonl --field text --into text_de
  seqserve corpus pages.parquet pages.de.parquet --field text --return-scores
  seqserve corpus english.txt german.txt --processes 1 --workers 8"""


class CorpusFormat(Enum):
    """Formats of corpora."""

    TEXT = "text"
    JSONL = "jsonl"
    PARQUET = "parquet"


_SUFFIXES = {
    ".jsonl": CorpusFormat.JSONL,
    ".ndjson": CorpusFormat.JSONL,
    ".parquet": CorpusFormat.PARQUET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusOptions(DecodingOptions):
    """The options of ``seqserve corpus``."""

    corpus: Path = option(help="File of the texts.", positional=True)
    out: Path = option(help="File to write.", positional=True)
    format: CorpusFormat | None = option(None, help="Format of CORPUS, whatever its suffix.")
    field: str | None = option(None, help="Field or column of the texts; text if not given.")
    into: str | None = option(
        None, help="Field or column to write the answers to; target if not given."
    )
    model: str | None = option(
        None,
        help="Folder of a model or of a version, or the name of a model of --model-repository; by"
        " default the one that the repository names as its default, or its only one.",
    )
    model_repository: Path | None = option(
        None, help="Folder of models, with the same default as `seqserve serve`."
    )
    glossaries: Path | None = option(
        None, help="Folder of glossaries for --glossary, as in `seqserve serve`."
    )
    workers: int | None = option(
        None,
        help="Threads that run steps, over all processes; if not given, one per core. With --ray,"
        " of each process, and 1 if not given.",
        minimum=1,
        group="engine",
    )
    processes: int | None = option(
        None,
        help="Number of processes, each with an engine and a copy of the model. If not given, one"
        " for each worker of a small model, or one for a larger model; with --ray, as many as the"
        " cluster has CPUs for.",
        minimum=1,
        group="engine",
    )
    ray: str | None = option(
        None,
        help="Run the engines on a Ray cluster: its address, host:port, auto for that of this"
        " machine, or local for a new one on this machine; needs the extra ray.",
        metavar="ADDRESS",
        group="engine",
    )
    slots: int | None = option(
        None,
        help="Maximum number of running rows of each process; if not given, 64, or 16 for each"
        " worker where that is more.",
        minimum=1,
        maximum=4096,
        group="engine",
    )

    def __post_init__(self) -> None:
        for name in (*NEED_JSON, "priority"):
            if getattr(self, name):
                raise OptionError(f"{flag_of(name)}: is for calls of a server, not for a corpus")
        if (self.decoding().get("num_hypotheses") or 1) > 1:
            raise OptionError("--num-hypotheses: a text of a corpus has one answer")
        if self.kind is CorpusFormat.TEXT:
            for flag, is_set in (
                ("--field", self.field),
                ("--into", self.into),
                ("--return-scores", self.decoding().get("return_scores")),
            ):
                if is_set:
                    raise OptionError(f"{flag}: a line of text has no fields; see --format")
        if self.decoding().get("source_language") == AUTO:
            raise OptionError("--source-language: auto needs a server; name the language")
        # OUT has the format of CORPUS, whatever its suffix would have others believe.
        kind = _SUFFIXES.get(self.out.suffix.lower(), self.kind)
        if self.format is None and kind is not self.kind:
            reason = f"is named as {kind.value}, but has the format of {self.corpus}"
            raise OptionError(f"OUT: {self.out} {reason}, {self.kind.value}")
        if self.ray is None and (self.processes or 1) > self.worker_count():
            reason = f"{self.processes} need a worker each, and there are {self.worker_count()}"
            raise OptionError(f"--processes: {reason}; see --workers")

    @property
    def kind(self) -> CorpusFormat:
        """The format of the corpus."""
        return self.format or _SUFFIXES.get(self.corpus.suffix.lower(), CorpusFormat.TEXT)

    def worker_count(self) -> int:
        """Returns the number of workers; if not given, it follows from the cores."""
        from seqserve.processes import available_cores

        return self.workers or available_cores()

    def engine(self, folder: Path, workers: int) -> EngineSettings:
        """Returns the settings of an engine, for the model in a folder."""
        from seqserve_server.corpus.engine import EngineSettings
        from seqserve_server.offline.offline import template_of

        set_options = {name: value for name, value in self.decoding().items() if value is not None}
        # Steps without scores are cheaper.
        set_options.setdefault("return_scores", False)
        return EngineSettings(
            model=str(folder.resolve()),
            workers=workers,
            slots=self.slots,
            glossaries=None if self.glossaries is None else str(self.glossaries.resolve()),
            template=template_of(set_options),  # type: ignore[arg-type]
        )

    def engines(self, folder: Path) -> list[EngineSettings]:
        """Returns the settings of each process of this machine."""
        from seqserve_server.artifact.manifest import is_small
        from seqserve_server.contract.limits import worker_shares

        workers = self.worker_count()
        processes = self.processes or (workers if is_small(folder) else 1)
        return [self.engine(folder, share) for share in worker_shares(workers, processes)]

    def opened(self) -> CorpusFile:
        """Opens the corpus."""
        from seqserve_server.corpus.corpus_file import JsonLinesFile, TextFile

        if not self.corpus.is_file():
            fault = "is not a regular file" if self.corpus.exists() else "there is no such file"
            raise OptionError(f"CORPUS: {self.corpus}: {fault}")
        is_named = self.format is None and is_named_as_document(self.corpus)
        if is_named and format_of(self.corpus) not in (Format.TEXT, Format.JSON_LINES):
            hint = "`seqserve translate` reads it; --format text takes its lines as texts"
            raise OptionError(f"CORPUS: {self.corpus} is no plain text: {hint}")
        field, into = self.field or "text", self.into or "target"
        has_scores = bool(self.decoding().get("return_scores"))
        if self.kind is CorpusFormat.TEXT:
            return TextFile(self.corpus)
        if self.kind is CorpusFormat.JSONL:
            return JsonLinesFile(self.corpus, field, into, has_scores=has_scores)
        try:
            from seqserve_server.corpus.parquet import ParquetFile
        except ModuleNotFoundError as error:
            hint = "pip install 'seqserve[server,parquet]'"
            reason = f"Parquet needs {error.name!r}, which is not installed: {hint}"
            raise OptionError(f"CORPUS: {self.corpus}: {reason}") from None
        return ParquetFile(self.corpus, field, into, has_scores=has_scores)

    def facts(self, folder: Path) -> dict[str, object]:
        """Returns what the answers depend on, except for their texts."""
        from seqserve_server.artifact.files import digest_of
        from seqserve_server.artifact.manifest import FILE

        manifest = digest_of(folder / FILE).sha256
        return {**self.decoding(), "manifest": manifest, "glossaries": self.glossaries}


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status, which is 1 if a text failed."""
    options = parse(
        CorpusOptions,
        argv,
        prog="seqserve corpus",
        description="Generates from every text of a corpus, without a server.",
        epilog=_EPILOG,
        hidden={*options_outside("languages", "beam search"), "priority"},
    )
    failed, count = _run(options)
    if failed:
        report = f"{failed:,} of {count:,} texts failed: see {options.out}.failed"
        print(f"seqserve: {report}", file=sys.stderr)
    return 1 if failed else 0


def _run(options: CorpusOptions) -> tuple[int, int]:
    from seqserve.command.journal import JournalFile
    from seqserve.files import label_of, replaceable
    from seqserve_server.artifact.repository import model_folder
    from seqserve_server.corpus.run import CorpusRun, failures_of

    folder = model_folder(options.model, options.model_repository)
    corpus = options.opened()
    place = replaceable(options.out, option="OUT")
    for written in (place, failures_of(options.out)):
        if written.exists() and written.samefile(options.corpus):
            raise OptionError(f"OUT: {options.corpus} would be overwritten; choose another place")
    label = label_of(options.out, "OUT")
    with JournalFile.beside(place, options.facts(folder), label=label) as journal:
        run, total = CorpusRun(corpus, journal, options.out), corpus.count()
        run.go_on()
        if journal.damaged_line:
            reason = f"line {journal.damaged_line} is damaged; what follows is answered again"
            _report(f"the journal of {options.out}: {reason}")
        if run.answered:
            _report(f"{run.answered:,} of {total:,} {corpus.unit} are answered already")
        if run.answered < total:
            is_shown = is_terminal(sys.stderr)
            with (
                _pool(options, folder) as pool,
                closing(
                    Progress(
                        sys.stderr, corpus.unit, is_shown=is_shown, total=total, begin=run.answered
                    )
                ) as progress,
            ):
                run.answer(pool, progress)
        return run.write(), total


def _pool(options: CorpusOptions, folder: Path) -> AbstractContextManager[Pool]:
    if options.ray is None:
        from seqserve_server.corpus.processes import ProcessPool

        return closing(ProcessPool(options.engines(folder)))
    from seqserve_server.corpus.ray_pool import RayPool

    settings = options.engine(folder, options.workers or 1)
    try:
        return closing(RayPool(options.ray, settings, options.processes, _report))
    except ModuleNotFoundError as error:
        hint = "pip install 'seqserve[ray]'"
        raise OptionError(f"--ray: needs {error.name!r}, which is not installed: {hint}") from None


def _report(text: str) -> None:
    print(f"seqserve: {text}", file=sys.stderr, flush=True)
