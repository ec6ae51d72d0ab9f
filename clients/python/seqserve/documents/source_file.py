"""A file of text: its encoding, its line ends and its byte order mark stay as they are."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from pathlib import Path

from seqserve.errors import OptionError

STANDARD_INPUT = Path("-")
_ENCODINGS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_MARK = "\ufeff"


class SourceFile:
    """A file whose lines are read once, and what is written is like it."""

    def __init__(self, path: Path, encoding: str) -> None:
        """Opens a file, or standard input for -.

        Args:
            path: Its path.
            encoding: Its encoding, unless a byte order mark tells.

        Raises:
            OptionError: It cannot be opened, or there is no such encoding.
        """
        self.name = "standard input" if path == STANDARD_INPUT else str(path)
        try:
            is_standard_input = path == STANDARD_INPUT
            data = open(0 if is_standard_input else path, "rb", closefd=not is_standard_input)  # noqa: SIM115
            head = data.peek(3)[:3]
        except OSError as error:
            raise OptionError(f"{self.name}: {error.strerror}") from None
        marks = [mark for mark in _ENCODINGS if head.startswith(mark)]
        self.encoding = _ENCODINGS[marks[0]] if marks else encoding
        self.mark = _MARK if marks else ""
        try:
            self._lines = io.TextIOWrapper(
                data, self.encoding, errors="surrogateescape", newline=""
            )
        except LookupError:
            data.close()
            raise OptionError(f"--encoding: there is no {encoding!r}") from None

    def __iter__(self) -> Iterator[str]:
        """Yields the lines with their ends, without the byte order mark.

        Raises:
            OptionError: The file cannot be read, or a line has bytes that are not in its encoding.
        """
        number = 0
        try:
            for number, line in enumerate(self._lines, start=1):
                if not line.isascii():
                    self._check(line, number)
                yield line.removeprefix(self.mark) if number == 1 else line
        except OSError as error:
            raise OptionError(f"{self.name}: {error.strerror}") from None
        except UnicodeError as error:
            reason = f"is not {self.encoding} behind line {number}: {error}"
            raise OptionError(f"{self.name}: {reason}") from None

    def _check(self, line: str, number: int) -> None:
        try:
            line.encode()
        except UnicodeEncodeError as error:
            byte = ord(line[error.start]) - 0xDC00
            where = f"line {number} is not {self.encoding}: byte 0x{byte:02X} after {error.start}"
            raise OptionError(
                f"{self.name}: {where} characters; --encoding tells another encoding"
            ) from None

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()
