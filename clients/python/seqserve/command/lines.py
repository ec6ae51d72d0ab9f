"""Lines of a file or of standard input, each of which is a source."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from seqserve.errors import InvalidArgument, OptionError, invalid_argument

STANDARD_INPUT = Path("-")

_BYTE_ORDER_MARK = "\ufeff"
# Of UTF-16, as bytes that are not UTF-8.
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
_CHUNK_BYTES = 1 << 20


class Lines:
    """The lines of a file, without their ends and without a byte order mark.

    Bytes that are not UTF-8 become surrogates. No message can carry those, so only that line is
    refused; :func:`not_utf8` tells why.
    """

    def __init__(self, file: Path) -> None:
        """Takes the path of a file, or - for standard input; it is opened when it is read."""
        self._file = file
        self.end = "\n"
        """The end of the first line, once it is read."""

    def __iter__(self) -> Iterator[str]:
        """Yields the lines.

        Raises:
            OptionError: The file cannot be read, or is UTF-16.
        """
        is_standard_input = self._file == STANDARD_INPUT
        if is_standard_input and sys.stdin.isatty():
            print("seqserve: reading lines, answering each; end with Ctrl-D", file=sys.stderr)
        try:
            # Not sys.stdin: a thread that waits for it would block the end of the program.
            with open(
                0 if is_standard_input else self._file,
                encoding="utf-8",
                errors="surrogateescape",
                newline="\n",
                closefd=not is_standard_input,
            ) as lines:
                is_first = True
                for line in lines:
                    yield (self._first(line) if is_first else line).rstrip("\r\n")
                    is_first = False
        except OSError as error:
            raise OptionError(f"{self._name}: {error.strerror}") from None

    def count(self) -> int | None:
        """Counts the lines; None if they can be read only once."""
        if not self._file.is_file():
            return None
        lines, last = 0, b"\n"
        try:
            with self._file.open("rb") as data:
                while chunk := data.read(_CHUNK_BYTES):
                    lines += chunk.count(b"\n")
                    last = chunk[-1:]
        except OSError:
            # Reading the lines tells why.
            return None
        return lines + (last != b"\n")

    def _first(self, line: str) -> str:
        if line.startswith(_UTF_16):
            reason = "is UTF-16; convert it, as with `iconv -f UTF-16 -t UTF-8`"
            raise OptionError(f"{self._name}: {reason}")
        if line.endswith("\r\n"):
            self.end = "\r\n"
        return line.removeprefix(_BYTE_ORDER_MARK)

    @property
    def _name(self) -> str:
        return "standard input" if self._file == STANDARD_INPUT else f"--file: {self._file}"


def not_utf8(text: str) -> InvalidArgument | None:
    """Returns the error for a line or an argument with bytes that are not UTF-8; None without."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) - 0xDC00
        reason = f"is not UTF-8: byte 0x{byte:02X} after {error.start} characters; convert it"
        return invalid_argument("source", reason)
    return None
