"""The files of a document: its source with encoding and byte order mark, and its translation."""

import codecs
import io
import sys
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from seqserve.command import process
from seqserve.command.journal import Journal
from seqserve.documents.formats import TELLING, Format, encoding_of, errors_of
from seqserve.documents.plain_text import HEAD_BYTES, MARK, marked, undecoded, unmarked
from seqserve.documents.report import Report
from seqserve.errors import OptionError
from seqserve.files import label_of, replaceable, written_whole
from seqserve.output import json_line

STANDARD_INPUT = Path("-")
_INSTEAD = "leave --out out to write to standard output"


class SourceFile:
    """The lines of a file, with their ends and without its byte order mark; they are read once."""

    def __init__(
        self,
        path: Path,
        encoding: str = "utf-8",
        kind: Format = Format.TEXT,
        *,
        option: str = "",
        newline: Literal["", "\n"] = "",
        is_strict: bool = True,
    ) -> None:
        r"""Opens a file, or standard input for -.

        Args:
            encoding: Its encoding, unless a byte order mark tells.
            kind: Its format, which may tell another encoding than UTF-8.
            option: Begins the messages of errors, if the path is not standard input.
            newline: The line separator: only ``"\n"``, or also ``"\r"`` if empty.
            is_strict: Whether bytes that are not in the encoding are an error; otherwise they
                become lone surrogates.
        """
        is_standard_input = path == STANDARD_INPUT
        self.name = "standard input" if is_standard_input else label_of(path, option)
        self._is_strict = is_strict
        if is_standard_input and sys.stdin.isatty():
            print("seqserve: reading lines; end with Ctrl-D", file=sys.stderr)
        try:
            # Not sys.stdin: a thread that waits for it would block the end of the program.
            data = open(0 if is_standard_input else path, "rb", closefd=not is_standard_input)  # noqa: SIM115
            self._head = data.peek(HEAD_BYTES)[:HEAD_BYTES]
            self.errors = "strict"
            if kind in TELLING:
                # It is read as a whole anyway.
                with data:
                    content = data.read()
                data, self.errors = io.BufferedReader(io.BytesIO(content)), errors_of(kind, content)
                encoding = encoding_of(kind, content) if encoding == "utf-8" else encoding
        except OSError as error:
            is_text = isinstance(error, FileNotFoundError) and not option and " " in self.name
            hint = "; `seqserve generate` takes texts" if is_text else ""
            raise OptionError(f"{self.name}: {error.strerror}{hint}") from None
        mark = marked(self._head)
        self.encoding, self.mark = mark or encoding, MARK if mark else ""
        try:
            self._lines = io.TextIOWrapper(
                data, self.encoding, errors="surrogateescape", newline=newline
            )
        except LookupError:
            data.close()
            raise OptionError(f"--encoding: unknown encoding {encoding!r}") from None

    def __iter__(self) -> Iterator[str]:
        if not (self._is_strict or self.mark) and (found := unmarked(self._head)):
            raise OptionError(f"{self.name}: {not_utf8(found[:-3] + found[-2:])}")
        number = 0
        try:
            for number, line in enumerate(self._lines, start=1):
                if self._is_strict and (place := undecoded(line)):
                    reason = f"line {number} is not {self.encoding}: {place}"
                    raise OptionError(f"{self.name}: {reason}; --encoding tells another encoding")
                if self._is_strict and "\0" in line:
                    raise OptionError(f"{self.name}: line {number} {self._reason_of_nul()}")
                yield line.removeprefix(self.mark) if number == 1 else line
        except OSError as error:
            raise OptionError(f"{self.name}: {error.strerror}") from None
        except UnicodeError as error:
            reason = f"is not {self.encoding} after line {number}: {error}"
            raise OptionError(f"{self.name}: {reason}") from None

    def _reason_of_nul(self) -> str:
        if (found := unmarked(self._head)) and found != self.encoding:
            return f"has NUL characters as {found} has them; --encoding {found} reads it"
        return "has a NUL character; the file is not text"

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()


def not_utf8(encoding: str) -> str:
    """Says what to do with a file that must be UTF-8; the encoding has the name that iconv has."""
    name = encoding.upper()
    return f"is {name}; convert it, as with `iconv -f {name} -t UTF-8`"


def can_be_read_twice(path: Path) -> bool:
    """Returns whether a path is a regular file, whose passages can be counted beforehand."""
    return path != STANDARD_INPUT and path.is_file()


@contextmanager
def document_output(
    out: Path | None, source: SourceFile, options: Mapping[str, object]
) -> Generator[tuple[Callable[[str], object], Journal | None], None, None]:
    """Opens the output of a document, and writes the byte order mark of its source.

    Args:
        out: A file, which appears when it is complete, or None for standard output. It has a
            journal.
        options: The options of the translation; a journal with other ones is of no use.

    Yields: The writer of the text, and the journal.
    """
    if out is None:
        write = _standard_output(source.encoding)
        write(source.mark)
        yield write, None
        return
    place = replaceable(out, instead=_INSTEAD)
    with (
        Journal.beside(place, options, label=label_of(out, "--out")) as journal,
        written_whole(out, "w", encoding=source.encoding, newline="", instead=_INSTEAD) as file,
    ):
        if journal.damaged_line:
            report = f"line {journal.damaged_line} is damaged; what follows is translated again"
            print(f"seqserve: the journal of {out}: {report}", file=sys.stderr, flush=True)
        file.write(source.mark)
        yield file.write, journal


@contextmanager
def archive_output(
    out: Path, options: Mapping[str, object]
) -> Generator[tuple[zipfile.ZipFile, Journal], None, None]:
    """Opens the output of a document that is an archive, and its journal, in the same way."""
    place = replaceable(out)
    with (
        Journal.beside(place, options, label=label_of(out, "--out")) as journal,
        written_whole(out) as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        yield archive, journal


def _standard_output(encoding: str) -> Callable[[str], object]:
    encoder = codecs.getincrementalencoder(encoding)()

    def write(text: str) -> None:
        if encoding == "utf-8":
            sys.stdout.write(text)
        else:
            process.write_bytes(encoder.encode(text))
        # At once, so that a reader need not wait for it.
        sys.stdout.flush()

    return write


def name_of(file: Path) -> str:
    """Returns what reports say for a file."""
    return "standard input" if file == STANDARD_INPUT else str(file)


def write_reports(path: Path, reports: Sequence[tuple[Path, Report]]) -> None:
    """Writes the reports of several files as one object of JSON."""
    facts = {"files": [{"file": name_of(file), **report.facts()} for file, report in reports]}
    with written_whole(path, "w", encoding="utf-8", option="--report") as file:
        file.write(f"{json_line(facts)}\n")
