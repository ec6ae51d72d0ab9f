"""``seqserve generate``: texts of the command line, or lines of standard input, to answers.

Answers come in the order of what was asked, one line each, many calls at once. Of standard input no
more is read than is being worked on, so that it may be endless; each answer is written as soon as
it and all before it are there, so that a program at the other end of a pipe may wait for it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from seqserve.client import DEFAULT_CONCURRENCY, Client
from seqserve.command.connection import ConnectionOptions
from seqserve.command.writer import JsonWriter, TextWriter, Writer
from seqserve.errors import CallError, NotFound, PermissionDenied, Unauthenticated, Unavailable
from seqserve.many import in_order
from seqserve.messages import GenerateOptions
from seqserve.options import option, parse
from seqserve.results import Result

_EPILOG = """\
Without TEXTS each line of standard input is a source, and each line of standard output its answer.
An empty line is answered with an empty line. A line that fails is reported on standard error with
its number, its answer is left empty, and the exit status is 1 at the end. A failure that would
befall every line (no server, no such model, not allowed) ends the run at once.

examples:
  seqserve generate "The coffee tastes good."
  seqserve generate --stream "We watched a film."
  seqserve generate < source.txt > target.txt
  seqserve generate --json "Good morning." | jq .timings"""

_ENDS_THE_RUN = (Unavailable, NotFound, Unauthenticated, PermissionDenied)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCommandOptions(ConnectionOptions):
    """The options of ``seqserve generate``."""

    texts: list[str] = option(
        [],
        help="Texts to generate from; without any, the lines of standard input.",
        positional=True,
    )
    model: str | None = option(None, help="Name of the model; the server's default if not given.")
    model_version: int | None = option(
        None, help="Version of the model; the highest sound one if not given.", minimum=1
    )
    max_decoding_length: int | None = option(
        None, help="Most target tokens; the model's default if not given.", minimum=1
    )
    min_decoding_length: int | None = option(
        None, help="Fewest target tokens; the model's default if not given.", minimum=0
    )
    stream: bool = option(False, help="Print text as it is decoded, one source after the other.")
    json: bool = option(False, help="Print one JSON object a line, with all the server said.")
    verbose: bool = option(False, help="Report tokens and timings on standard error.")
    concurrency: int = option(
        DEFAULT_CONCURRENCY,
        help="Most calls at once: more keep the server's batch full, fewer leave room for others.",
        minimum=1,
        maximum=1024,
    )

    def decoding(self) -> GenerateOptions:
        """Gives what goes with each source."""
        return GenerateOptions(
            model=self.model,
            version=self.model_version,
            max_decoding_length=self.max_decoding_length,
            min_decoding_length=self.min_decoding_length,
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sources: Iterable[str] = options.texts or _lines()
    kind = JsonWriter if options.json else TextWriter
    writer = kind("text" if options.texts else "line", verbose=options.verbose)
    with options.connect() as client:
        answer = _stream if options.stream else _answer
        answer(client, options, sources, writer)
    return 1 if writer.failures else 0


def _answer(
    client: Client, options: GenerateCommandOptions, sources: Iterable[str], writer: Writer
) -> None:
    decoding = options.decoding()

    def generate(source: str) -> Result | None:
        return client.generate(source, **decoding) if source.strip() else None

    with closing(in_order(generate, sources, options.concurrency)) as outcomes:
        for number, outcome in enumerate(outcomes, start=1):
            try:
                writer.result(number, outcome.result())
            except _ENDS_THE_RUN:
                raise
            except CallError as error:
                writer.failure(number, error)


def _stream(
    client: Client, options: GenerateCommandOptions, sources: Iterable[str], writer: Writer
) -> None:
    decoding = options.decoding()
    for number, source in enumerate(sources, start=1):
        if not source.strip():
            writer.result(number, None)
            continue
        try:
            for piece in client.stream(source, **decoding):
                writer.piece(number, piece)
        except _ENDS_THE_RUN:
            raise
        except CallError as error:
            writer.failure(number, error)


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
