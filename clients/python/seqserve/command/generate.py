"""``seqserve generate``: texts of the command line, or lines of a file, to answers.

Answers come in the order of what was asked, one line each. Of lines no more are read than are being
worked on, so that there may be no end of them; each answer is written as soon as it and all before
it are there, so that a program at the other end of a pipe may wait for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from seqserve.client import BULK_CONCURRENCY, DEFAULT_CONCURRENCY, Client
from seqserve.command.connection import ModelCallOptions
from seqserve.command.decoding import NEED_JSON, OUTPUT, DecodingOptions
from seqserve.command.lines import STANDARD_INPUT, lines_of
from seqserve.command.order import Order
from seqserve.command.progress import Progress
from seqserve.command.writer import JsonWriter, TextWriter, Writer
from seqserve.decoding import GenerateOptions
from seqserve.errors import (
    CallError,
    InvalidArgument,
    NotFound,
    OptionError,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from seqserve.many import WINDOW, in_order
from seqserve.options import flag_of, option, parse
from seqserve.results import Result

_EPILOG = """\
Without TEXTS each line of standard input is a source, and each line of standard output its answer.
An empty line is answered with an empty line. A line that fails is reported on standard error with
its number, its answer is left empty, and the exit status is 1 at the end. A failure that
concerns every line (no server, no such model, a wrong option, not allowed) ends the run at once.

With --file the lines of a file, or of standard input where it is -, are answered in the same way,
but in one call, of which the server reads on as it gets lines done; --timeout-s does not limit it.
If the server shuts down, another one at --target is sent the rest. Where answers go to a file or a
pipe, the terminal shows how many there are.

With --num-hypotheses N every source is answered with N lines, best first; those for which there is
no hypothesis are empty. With --return-scores a line is SCORE, a tab and the text. SCORE is what
hypotheses are ranked by, the sum of the log-probabilities divided by the length as --length-penalty
says; --json has the sum too.

A hypothesis that lacks the target of a term of --terms, though its source is there, is reported on
standard error; --json has it in unmet_terms.

Tokens are pieces of words, and ▁ stands for the space before one: "▁anges" "ehen" is angesehen.
--json shows those of an answer.

examples:
  seqserve generate "The coffee tastes good."
  seqserve generate --stream "We watched a film."
  seqserve generate < source.txt > target.txt
  seqserve generate --file source.txt > target.txt
  zcat source.txt.gz | seqserve generate --file - --json | gzip > target.jsonl.gz
  seqserve generate --beam-size 5 --num-hypotheses 5 --return-scores "The weather is nice today."
  seqserve generate --temperature 0.8 --top-p 0.9 --seed 7 "The weather is nice today."
  seqserve generate --target-prefix "Der" --stop-sequences " schmeckt" "The coffee tastes good."
  seqserve generate --suppress-sequences "▁G ute" "Good morning."
  seqserve generate --beam-size 5 --terms "computer=Rechner" "I need a computer."
  seqserve generate --return-alternatives --num-hypotheses 5 "The coffee tastes good."
  seqserve generate --json "The weather is nice today." | jq .timings"""

_ENDS_THE_RUN = (Unavailable, NotFound, Unauthenticated, PermissionDenied)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCommandOptions(ModelCallOptions, DecodingOptions):
    """The options of ``seqserve generate``."""

    texts: list[str] = option(
        [],
        help="Texts to generate from; without any, the lines of standard input.",
        positional=True,
    )
    file: Path | None = option(
        None, help="Lines to generate from, in place of TEXTS, in one call; - for standard input."
    )
    stream: bool = option(
        False, help="Print text as it is decoded, one source after the other.", group=OUTPUT
    )
    json: bool = option(
        False, help="Print one JSON object a line, with all the server said.", group=OUTPUT
    )
    verbose: bool = option(False, help="Report tokens and timings on standard error.", group=OUTPUT)
    concurrency: int | None = option(
        None,
        help="Most calls at once, or most lines of --file: more keep the server's batch full, fewer"
        f" leave room for others; {DEFAULT_CONCURRENCY} calls, {BULK_CONCURRENCY} lines if not"
        " given.",
        minimum=1,
        maximum=1024,
    )

    def __post_init__(self) -> None:
        """Refuses what lines of text have no place for.

        Raises:
            OptionError: An option needs another, or forbids it.
        """
        if self.file and (self.texts or self.stream):
            other = "--stream" if self.stream else "TEXTS"
            raise OptionError(f"--file: does not go with {other}; give one of the two")
        if self.json:
            return
        for name in NEED_JSON:
            if getattr(self, name):
                raise OptionError(f"{flag_of(name)}: needs --json, for a line has no place for it")
        decoding = self.decoding()
        several = (decoding.get("num_hypotheses") or 1) > 1
        if self.stream and (decoding.get("return_scores") or several):
            reason = "shows one text before its score is there; several, or scores, need --json"
            raise OptionError(f"--stream: {reason}")

    def call(self) -> GenerateOptions:
        """Gives what goes with each source."""
        return {"model": self.model, "version": self.model_version, **self.decoding()}

    def writer(self) -> Writer:
        """Makes what writes the answers."""
        unit = "text" if self.texts else "line"
        if self.json:
            return JsonWriter(unit, verbose=self.verbose)
        decoding = self.decoding()
        return TextWriter(
            unit,
            verbose=self.verbose,
            hypotheses=decoding.get("num_hypotheses") or 1,
            scores=bool(decoding.get("return_scores")),
        )


def main(argv: list[str]) -> int:
    """Answers texts or lines.

    Args:
        argv: Arguments after the command's name.

    Returns:
        The exit status: 1 where a source failed.

    Raises:
        SeqserveError: An option is wrong, or a call failed in a way that befalls every source.
    """
    options = parse(
        GenerateCommandOptions,
        argv,
        prog="seqserve generate",
        description="Generates from texts, or from the lines of a file or of standard input.",
        epilog=_EPILOG,
    )
    writer = options.writer()
    with options.connect() as client:
        if options.file:
            _answer_file(client, options, options.file, writer)
        else:
            sources: Iterable[str] = options.texts or lines_of(STANDARD_INPUT)
            answer = _stream if options.stream else _answer
            answer(client, options, sources, writer)
    return 1 if writer.failures else 0


def _answer(
    client: Client, options: GenerateCommandOptions, sources: Iterable[str], writer: Writer
) -> None:
    call = options.call()

    def generate(source: str) -> Result | None:
        return client.generate(source, **call) if source.strip() else None

    concurrency = options.concurrency or DEFAULT_CONCURRENCY
    with closing(in_order(generate, sources, concurrency)) as outcomes:
        for number, outcome in enumerate(outcomes, start=1):
            try:
                writer.result(number, outcome.result())
            except CallError as error:
                _raise_if_it_befalls_all(error)
                writer.failure(number, error)


def _answer_file(
    client: Client, options: GenerateCommandOptions, file: Path, writer: Writer
) -> None:
    concurrency = options.concurrency or BULK_CONCURRENCY
    order = Order(lines_of(file), WINDOW * concurrency)
    bulk = client.generate_bulk(order.sources(), concurrency=concurrency, **options.call())
    with closing(bulk), closing(order.restored(bulk)) as outcomes, _progress(options) as progress:
        for number, (line, outcome) in enumerate(outcomes, start=1):
            if not line.strip():
                # The server has refused it, as a source that is empty.
                writer.result(number, None)
            elif isinstance(outcome, CallError):
                _raise_if_it_befalls_all(outcome)
                progress.clear()
                writer.failure(number, outcome)
            else:
                writer.result(number, outcome)
            progress.advance()


def _progress(options: GenerateCommandOptions) -> Progress:
    # Answers in the same terminal, and reports of each line, show it well enough.
    is_seen = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    is_shown = is_seen and not sys.stdout.isatty() and not options.verbose
    return Progress(sys.stderr, "lines", is_shown=is_shown)


def _stream(
    client: Client, options: GenerateCommandOptions, sources: Iterable[str], writer: Writer
) -> None:
    call = options.call()
    for number, source in enumerate(sources, start=1):
        if not source.strip():
            writer.result(number, None)
            continue
        try:
            for piece in client.stream(source, **call):
                writer.piece(number, piece)
        except CallError as error:
            _raise_if_it_befalls_all(error)
            writer.failure(number, error)


def _raise_if_it_befalls_all(error: CallError) -> None:
    is_option = isinstance(error, InvalidArgument) and error.field not in ("", "source")
    if is_option or isinstance(error, _ENDS_THE_RUN):
        raise error
