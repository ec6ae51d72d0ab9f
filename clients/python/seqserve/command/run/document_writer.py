"""The translation of a document on its way to a file or to standard output."""

from __future__ import annotations

import codecs
import sys
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from seqserve.command import process
from seqserve.command.run.document_run import Outcome
from seqserve.command.run.journal import Journal
from seqserve.command.run.order import LineNumbers
from seqserve.command.run.source_file import SourceFile
from seqserve.documents.passage import Passage, Translation, translation_of
from seqserve.errors import CallError
from seqserve.files import replaceable, written_whole

_INSTEAD = "leave --out out to write to standard output"


class DocumentWriter:
    """Writes the translations of passages, and what stands between them, in order.

    A passage that fails stays as it is and is reported on standard error.
    """

    def __init__(
        self,
        name: str,
        encoding: str,
        write: Callable[[str], object],
        journal: Journal | None = None,
    ) -> None:
        """Takes the document's name for reports, its encoding, and where it is written."""
        self._name = name
        self._encoding = encoding
        self._write = write
        self._journal = journal
        self.before_report: Callable[[], object] = lambda: None
        """Called before each report."""
        self.count = 0
        """Number of passages with a text so far."""
        self.failed = LineNumbers()
        """Lines of the passages that failed."""

    def is_sent(self, passage: Passage) -> bool:
        """Tells whether a passage has words whose translation is not known."""
        return passage.has_words and not passage.fault and self._known(passage) is None

    def write(self, passage: Passage, outcome: Outcome) -> None:
        """Writes a passage.

        Raises:
            NotWritten: The output or the journal cannot be written.
        """
        self.count += passage.has_words or bool(passage.fault)
        if passage.fault:
            self._fail(passage, passage.fault)
        elif isinstance(outcome, CallError):
            self._fail(passage, str(outcome))
        elif outcome is None:
            known = self._known(passage) if passage.has_words else None
            text = passage.source if known is None else passage.written(known)
            self._write(passage.before + text)
        else:
            self._write_new(passage, translation_of(outcome))

    def _write_new(self, passage: Passage, translation: Translation) -> None:
        text = passage.written(translation)
        try:
            text.encode(self._encoding)
        except UnicodeEncodeError as error:
            unknown = error.object[error.start]
            self._fail(passage, f"its translation has {unknown!r}, not in {self._encoding}")
            return
        if self._journal is not None:
            self._journal.add(passage.text, translation)
        self._write(passage.before + text)

    def _known(self, passage: Passage) -> Translation | None:
        """Returns a translation that an earlier run has made, if it is of use for a passage."""
        known = None if self._journal is None else self._journal.get(passage.text)
        return known if known is None or known.alignment or not passage.split_passages else None

    def _fail(self, passage: Passage, reason: str) -> None:
        self.failed.add(passage.line)
        self._write(passage.before + passage.source)
        self.before_report()
        report = f"seqserve: {self._name}: line {passage.line}: {reason}"
        print(report, file=sys.stderr, flush=True)


@contextmanager
def document_writer(
    out: Path | None, source: SourceFile, options: Mapping[str, object]
) -> Generator[DocumentWriter, None, None]:
    """Opens the output of a document, and writes the byte order mark of its source.

    Args:
        out: A file, which is complete when it is there, or None for standard output. Until then
            there is a journal beside it.
        source: The document.
        options: The options of the translation; a journal with other ones is of no use.

    Raises:
        OptionError: The file cannot be opened, or what is there is not a regular file.
    """
    if out is None:
        yield _writer(source, _standard_output(source.encoding))
        return
    place = replaceable(out, instead=_INSTEAD)
    with (
        Journal.beside(place, options, out=out) as journal,
        written_whole(out, "w", encoding=source.encoding, newline="", instead=_INSTEAD) as file,
    ):
        if journal.damaged_line:
            report = f"line {journal.damaged_line} is damaged; what follows is translated again"
            print(f"seqserve: the journal of {out}: {report}", file=sys.stderr, flush=True)
        yield _writer(source, file.write, journal)


@contextmanager
def archive_writer(
    out: Path, options: Mapping[str, object]
) -> Generator[tuple[zipfile.ZipFile, Journal], None, None]:
    """Opens the output of a document that is an archive, and the journal of its translations.

    Args:
        out: A file, which is complete when it is there.
        options: The options of the translation; a journal with other ones is of no use.

    Raises:
        OptionError: The file cannot be opened, or what is there is not a regular file.
    """
    place = replaceable(out)
    with (
        Journal.beside(place, options, out=out) as journal,
        written_whole(out) as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        yield archive, journal


def _writer(
    source: SourceFile, write: Callable[[str], object], journal: Journal | None = None
) -> DocumentWriter:
    write(source.mark)
    return DocumentWriter(source.name, source.encoding, write, journal)


def _standard_output(encoding: str) -> Callable[[str], None]:
    """Returns what writes text at once, so that a reader need not wait for it."""
    encoder = codecs.getincrementalencoder(encoding)()

    def write(text: str) -> None:
        if encoding == "utf-8":
            sys.stdout.write(text)
        else:
            process.write_bytes(encoder.encode(text))
        sys.stdout.flush()

    return write
