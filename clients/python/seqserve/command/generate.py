"""``seqserve generate``: texts of the command line, or lines of standard input, to answers.

Answers come in the order of what was asked, one line each, many calls at once. Of standard input no
more is read than is being worked on, so that it may be endless; each answer is written as soon as
it and all before it are there, so that a program at the other end of a pipe may wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from seqserve.client import DEFAULT_CONCURRENCY, Client
from seqserve.command.connection import ModelCallOptions
from seqserve.command.decoding import OUTPUT, DecodingOptions
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
from seqserve.many import in_order
from seqserve.options import flag_of, option, parse
from seqserve.results import Result

_EPILOG = """\
Without TEXTS each line of standard input is a source, and each line of standard output its answer.
An empty line is answered with an empty line. A line that fails is reported on standard error with
its number, its answer is left empty, and the exit status is 1 at the end. A failure that would
befall every line (no server, no such model, a wrong option, not allowed) ends the run at once.

With --num-hypotheses N every source is answered with N lines, best first; those for which there is
no hypothesis are empty. With --return-scores a line is SCORE, a tab and the text. SCORE is what
hypotheses are ranked by, the sum of the log-probabilities divided by the length as --length-penalty
says; --json has the sum too.

A hypothesis that lacks the target of a term of --terms, though its source is there, is reported on
standard error; --json has it in unmet_terms.

examples:
  seqserve generate "The coffee tastes good."
  seqserve generate --stream "We watched a film."
  seqserve generate < source.txt > target.txt
  seqserve generate --beam-size 5 --num-hypotheses 5 --return-scores "Good morning."
  seqserve generate --temperature 0.8 --top-p 0.9 --seed 7 "Good morning."
  seqserve generate --target-prefix "Der" --stop-sequences "," --stop-sequences "!" "The coffee."
  seqserve generate --suppress-sequences "▁guten ▁Morgen" "Good morning."
  seqserve generate --beam-size 5 --terms "coffee=Bohnenkaffee" "The coffee tastes good."
  seqserve generate --return-alternatives --num-hypotheses 5 "The coffee tastes good."
  seqserve generate --json "Good morning." | jq .timings"""

_ENDS_THE_RUN = (Unavailable, NotFound, Unauthenticated, PermissionDenied)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCommandOptions(ModelCallOptions, DecodingOptions):
    """The options of ``seqserve generate``."""

    texts: list[str] = option(
        [],
        help="Texts to generate from; without any, the lines of standard input.",
        positional=True,
    )
    stream: bool = option(
        False, help="Print text as it is decoded, one source after the other.", group=OUTPUT
    )
    json: bool = option(
        False, help="Print one JSON object a line, with all the server said.", group=OUTPUT
    )
    verbose: bool = option(False, help="Report tokens and timings on standard error.", group=OUTPUT)
    concurrency: int = option(
        DEFAULT_CONCURRENCY,
        help="Most calls at once: more keep the server's batch full, fewer leave room for others.",
        minimum=1,
        maximum=1024,
    )

    def __post_init__(self) -> None:
        """Refuses what lines of text have no place for.

        Raises:
            OptionError: An option needs another, or forbids it.
        """
        if self.json:
            return
        for name in ("return_token_scores", "return_top_tokens", "return_attention"):
            if getattr(self, name):
                raise OptionError(f"{flag_of(name)}: needs --json, for a line has no place for it")
        if self.stream and (self.return_scores or (self.num_hypotheses or 1) > 1):
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
        return TextWriter(
            unit,
            verbose=self.verbose,
            hypotheses=self.num_hypotheses or 1,
            scores=bool(self.return_scores),
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
        description="Generates from texts, or from the lines of standard input.",
        epilog=_EPILOG,
    )
    sources: Iterable[str] = options.texts or _lines()
    writer = options.writer()
    with options.connect() as client:
        answer = _stream if options.stream else _answer
        answer(client, options, sources, writer)
    return 1 if writer.failures else 0


def _answer(
    client: Client, options: GenerateCommandOptions, sources: Iterable[str], writer: Writer
) -> None:
    call = options.call()

    def generate(source: str) -> Result | None:
        return client.generate(source, **call) if source.strip() else None

    with closing(in_order(generate, sources, options.concurrency)) as outcomes:
        for number, outcome in enumerate(outcomes, start=1):
            try:
                writer.result(number, outcome.result())
            except CallError as error:
                _raise_if_it_befalls_all(error)
                writer.failure(number, error)


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


def _lines() -> Iterator[str]:
    if sys.stdin.isatty():
        print("seqserve: reading lines, answering each; end with Ctrl-D", file=sys.stderr)
    # A reader of our own: sys.stdin, held by a waiting thread, would block the end of the program.
    # Bytes that are no UTF-8 become lone surrogates, which only their own line is refused for.
    with open(
        0, encoding="utf-8", errors="surrogateescape", newline="\n", closefd=False
    ) as standard_input:
        for line in standard_input:
            yield line.rstrip("\r\n")
