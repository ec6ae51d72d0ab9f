"""``seqserve generate``: generates from texts of the command line or from lines of a file.

Answers come in the order of the sources, one line each. The command reads only as many lines as it
works on, so the input may be endless, and writes each answer as soon as it and all before it are
there, so that a program at the other end of a pipe may wait for it.
"""

import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seqserve import Client, errors
from seqserve._sync.calls import WorkerPool
from seqserve.arguments import BULK_CONCURRENCY, DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_S
from seqserve.command import process
from seqserve.command.advice import advice_on_text, raise_if_fatal
from seqserve.command.connection import NEED_JSON, OUTPUT, GenerateCallOptions
from seqserve.command.document_files import STANDARD_INPUT, SourceFile, can_be_read_twice, not_utf8
from seqserve.command.document_run import DocumentRun
from seqserve.command.process import OutputLost
from seqserve.command.progress import Progress, is_terminal
from seqserve.command.writers import AnswerWriter, JsonWriter, Outcome, TextWriter
from seqserve.documents.passage import Passage
from seqserve.documents.plain_text import fault_of, parse_lines
from seqserve.options import flag_of, option, parse

_ABOUT = """\
Generates from texts, or from the lines of a file or of standard input.

Without TEXTS each line of standard input is a source, and each line of standard output is its
answer. The answer to an empty line is an empty line. A byte order mark is left out, and lines end
as the first one does. If the server is busy or goes away, lines wait without limit, unless
--timeout-s or --max-attempts sets one. If a line fails, its answer is empty, standard error reports
its number, and the exit status is 1. If an error concerns every line (no such model, a wrong
option, no permission), the run ends at once and reports where to go on.

--file answers the lines of a file, or of standard input for -, in one call, which --timeout-s does
not limit. If the server shuts down, another one of --target gets the rest. If answers go to a file
or a pipe, the terminal shows the progress.

--num-hypotheses N writes N lines for every source, best first; missing hypotheses are empty lines.
--return-scores writes SCORE, a tab and the text. SCORE is the sum of the log-probabilities, divided
by the length as --length-penalty says; --json has the sum too.

--segmentation sentences answers each sentence of a TEXT or line separately and joins the answers,
so a TEXT may be a page. All white space, such as line breaks, comes back as it was. --segmentation
none sends each TEXT or line whole; standard error warns of the first with several sentences.

If the model probably cannot read a source, such as another script or HTML, standard error warns of
it. --json has the reasons in source_warnings, and a confidence for each answer.

If a source contains a term of --terms or --glossary and its answer lacks the target, standard error
reports it; --json has it in unmet_terms. Standard error also reports an answer whose numbers differ
from its source (in warnings of --json) and, at the end, those cut short (stop_reason) or garbled.

examples:
  seqserve generate "The coffee tastes good."
  seqserve generate < source.txt > target.txt
  seqserve generate --beam-size 5 --num-hypotheses 5 --return-scores "The weather is nice today."
  seqserve generate --terms "computer=Rechner" "I need a computer."
  seqserve generate --segmentation sentences "It is late. We saw a good film."
  seqserve generate --json "The weather is nice today." | jq .timings"""

_CUT = "The output may end in a part of the next answer."


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCommandOptions(GenerateCallOptions):
    """The options of ``seqserve generate``."""

    texts: list[str] = option(
        [], help="Texts to generate from; by default the lines of standard input.", positional=True
    )
    file: Path | None = option(None, help="File of lines to generate from; - for standard input.")
    stream: bool = option(
        False, help="Print text while it is decoded, one source after the other.", group=OUTPUT
    )
    json: bool = option(False, help="Print one JSON object a line, with every field.", group=OUTPUT)
    verbose: bool = option(False, help="Report tokens and timings on standard error.", group=OUTPUT)
    concurrency: int | None = option(
        None,
        help="Maximum number of texts or lines at once: more keep the server's batch full, fewer"
        f" leave room for others; by default {DEFAULT_CONCURRENCY} texts or {BULK_CONCURRENCY}"
        " lines.",
        minimum=1,
        maximum=1024,
    )
    timeout_s: float | None = option(
        None,
        help="Seconds for each text, or for all lines, with retries; inf for no limit; by default"
        f" {DEFAULT_TIMEOUT_S:g} for a text, no limit for lines.",
        minimum=0.001,
        group="connection",
    )

    def __post_init__(self) -> None:
        if self.file and (self.texts or self.stream):
            other = "--stream" if self.stream else "TEXTS"
            raise errors.OptionError(f"--file: does not go with {other}; give one of the two")
        if self.json:
            return
        for name in NEED_JSON:
            if getattr(self, name):
                reason = "needs --json, because a line has no room for it"
                raise errors.OptionError(f"{flag_of(name)}: {reason}")
        decoding = self.decoding()
        several = (decoding.get("num_hypotheses") or 1) > 1
        if self.stream and (decoding.get("return_scores") or several):
            reason = "shows one text before its score is there; several hypotheses, or scores,"
            raise errors.OptionError(f"--stream: {reason} need --json")

    def writer(self) -> AnswerWriter:
        """Makes the writer of the answers."""
        label = "text" if self.texts else "line"
        if self.json:
            return JsonWriter(label=label, verbose=self.verbose)
        decoding = self.decoding()
        return TextWriter(
            label=label,
            verbose=self.verbose,
            hypotheses=decoding.get("num_hypotheses") or 1,
            scores=bool(decoding.get("return_scores")),
            keeps_lines=bool(self.texts) and decoding.get("segmentation") not in (None, "none"),
        )


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status, which is 1 if a source failed."""
    options = parse(GenerateCommandOptions, argv, prog="seqserve generate", description=_ABOUT)
    writer = options.writer()
    if not options.texts:
        process.last_word = lambda: _last_word(options.file, writer.count)
    try:
        _answer(options, writer, DEFAULT_TIMEOUT_S if options.texts else math.inf)
    except errors.SeqserveError as error:
        if writer.count and not options.texts:
            error.add_note(_where_to_go_on(options.file, writer.count))
            if isinstance(error, OutputLost):
                error.add_note(_CUT)
        raise
    finally:
        writer.report_shared()
    if writer.failed.count and not options.texts:
        report = f"{writer.failed.count:,} of {writer.count:,} lines failed: {writer.failed}"
        print(f"seqserve: {report}", file=sys.stderr)
    return 1 if writer.failed.count else 0


def _last_word(file: Path | None, answered: int) -> str:
    is_typed = file in (None, STANDARD_INPUT) and sys.stdin.isatty()
    if not answered or is_typed:
        return ""
    return f"seqserve: {_where_to_go_on(file, answered)}\n{_CUT}\n"


def _where_to_go_on(file: Path | None, answered: int) -> str:
    name = "INPUT" if file in (None, STANDARD_INPUT) else shlex.quote(str(file))
    rest = f"`tail -n +{answered + 1} {name}` shows the others"
    first = "line is" if answered == 1 else f"{answered:,} lines are"
    return f"The first {first} answered; {rest}."


def _answer(
    options: GenerateCommandOptions, writer: AnswerWriter, default_timeout_s: float
) -> None:
    with (
        closing(_progress(options)) as progress,
        options.connect(default_timeout_s, progress.clear) as client,
    ):
        writer.before_report = progress.clear
        if options.stream:
            _stream(client, options, writer)
        elif options.texts:
            _answer_texts(client, options, writer)
        else:
            DocumentRun(
                client=client,
                writer=writer,
                progress=progress,
                concurrency=options.concurrency or BULK_CONCURRENCY,
                timeout_s=options.timeout_s,
                call=options.keywords(),
            ).run(_sources(options, writer))


def _sources(options: GenerateCommandOptions, writer: AnswerWriter) -> Iterator[Passage]:
    segmentation, is_reported = options.decoding().get("segmentation"), False
    is_argument = bool(options.texts)
    texts = (
        Passage(line=number, source=text, text=text, fault=fault_of(text))
        for number, text in enumerate(options.texts, start=1)
    )
    for source in texts if is_argument else _lines(options, writer):
        if not is_reported:
            advice = advice_on_text(source.text, segmentation, is_argument=is_argument)
            is_reported = bool(advice)
            if advice:
                writer.report(source.line, advice)
        yield source


def _lines(
    options: GenerateCommandOptions, writer: AnswerWriter | None = None
) -> Iterator[Passage]:
    path = options.file or STANDARD_INPUT
    lines = SourceFile(path, option="--file", newline="\n", is_strict=False)
    with closing(lines):
        if lines.encoding != "utf-8":
            raise errors.OptionError(f"{lines.name}: {not_utf8(lines.encoding[:-3])}")
        for passage in parse_lines(lines):
            if writer and passage.line == 1 and passage.source.endswith("\r\n"):
                writer.line_end = "\r\n"
            yield passage


def _answer_texts(client: Client, options: GenerateCommandOptions, writer: AnswerWriter) -> None:
    call = options.keywords()

    def generate(text: Passage) -> tuple[Passage, Outcome]:
        if text.fault or not text.text.strip():
            return text, None
        try:
            return text, client.generate(text.text, **call)
        except errors.CallError as error:
            return text, error

    concurrency = options.concurrency or DEFAULT_CONCURRENCY
    with closing(
        WorkerPool(generate, _sources(options, writer), concurrency).outcomes()
    ) as answers:
        for answer in answers:
            text, outcome = answer.result()
            if isinstance(outcome, errors.CallError):
                raise_if_fatal(outcome)
            writer.write(text, outcome)


def _stream(client: Client, options: GenerateCommandOptions, writer: AnswerWriter) -> None:
    call = options.keywords()
    for source in _sources(options, writer):
        if source.fault or not source.text.strip():
            writer.write(source, None)
            continue
        try:
            for piece in client.stream(source.text, **call):
                writer.piece(source.line, piece)
        except errors.CallError as error:
            raise_if_fatal(error)
            writer.write(source, error)


def _progress(options: GenerateCommandOptions) -> Progress:
    # Answers in the same terminal, or a report of each line, show the progress well enough.
    is_shown = options.file is not None and not options.verbose and is_terminal(sys.stderr)
    is_shown = is_shown and not sys.stdout.isatty()
    counts = is_shown and options.file is not None and can_be_read_twice(options.file)
    total = sum(1 for _ in _lines(options)) if counts else None
    return Progress(sys.stderr, "lines", is_shown=is_shown, total=total)
