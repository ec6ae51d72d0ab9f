"""Where a translated document is written: a file that is complete when it is there, or a stream."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Protocol, Self, TextIO

from seqserve.documents.journal import Journal
from seqserve.documents.passage import Translation
from seqserve.errors import OptionError
from seqserve.files import replaceable


class Output(Protocol):
    """Takes the text of a document in order, and remembers translations."""

    encoding: str

    def write(self, text: str) -> None:
        """Writes text that can be encoded."""

    def known(self, text: str) -> Translation | None:
        """Returns a translation that an earlier run has made."""

    def remember(self, text: str, translation: Translation) -> None:
        """Keeps a translation for another run."""

    def __enter__(self) -> Self:
        """Returns the output itself."""

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Ends the document, if there was no error."""


class StandardOutput:
    """Standard output, which remembers nothing."""

    def __init__(self, encoding: str) -> None:
        """Takes the encoding of the document."""
        self.encoding = encoding

    def write(self, text: str) -> None:
        """Writes text at once, so that a reader need not wait for it."""
        if self.encoding == "utf-8":
            sys.stdout.write(text)
        else:
            sys.stdout.buffer.write(text.encode(self.encoding))
        sys.stdout.flush()

    def known(self, text: str) -> Translation | None:
        """Knows none."""
        return None

    def remember(self, text: str, translation: Translation) -> None:
        """Keeps nothing."""

    def __enter__(self) -> Self:
        """Returns the output itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Leaves the stream open."""


class OutputFile:
    """A file that takes its name when it is complete, and a journal beside it until then."""

    def __init__(self, path: Path, encoding: str, asked: dict[str, object]) -> None:
        """Opens both; ``asked`` are the options of the translation.

        A link stays: the file that it leads to is written.

        Raises:
            OptionError: One of them cannot be opened, or what is there is not a regular file.
        """
        self.encoding = encoding
        try:
            self._path = replaceable(path, instead="leave --out out to write to standard output")
            self._part = self._beside("part")
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._journal = Journal(self._beside("journal"), asked)
            self._file = self._opened_part()
        except BlockingIOError:
            raise OptionError(f"--out: {path}: is being written by another run") from None
        except OSError as error:
            raise OptionError(f"--out: {path}: {error.strerror}") from None

    def write(self, text: str) -> None:
        """Writes text."""
        self._file.write(text)

    def known(self, text: str) -> Translation | None:
        """Returns a translation from the journal."""
        return self._journal.get(text)

    def remember(self, text: str, translation: Translation) -> None:
        """Adds a translation to the journal."""
        self._journal.add(text, translation)

    def __enter__(self) -> Self:
        """Returns the output itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Gives the file its name; after an error only the journal stays."""
        self._file.close()
        if kind is None:
            os.replace(self._part, self._path)
            self._journal.remove()
        else:
            self._part.unlink(missing_ok=True)
            self._journal.close()

    def _opened_part(self) -> TextIO:
        try:
            return self._part.open("w", encoding=self.encoding, newline="")
        except OSError:
            self._journal.close()
            raise

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{suffix}")
