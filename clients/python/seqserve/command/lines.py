"""Lines of a file or of standard input, each of which is a source."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from seqserve.errors import OptionError

STANDARD_INPUT = Path("-")


def lines_of(file: Path) -> Iterator[str]:
    """Gives the lines of a file without their ends; bytes that are no UTF-8 as lone surrogates.

    No message can carry those, so only their own line is refused.

    Raises:
        OptionError: The file cannot be read.
    """
    is_standard_input = file == STANDARD_INPUT
    if is_standard_input and sys.stdin.isatty():
        print("seqserve: reading lines, answering each; end with Ctrl-D", file=sys.stderr)
    try:
        # A reader of our own: sys.stdin, held by a waiting thread, would block the program's end.
        with open(
            0 if is_standard_input else file,
            encoding="utf-8",
            errors="surrogateescape",
            newline="\n",
            closefd=not is_standard_input,
        ) as lines:
            for line in lines:
                yield line.rstrip("\r\n")
    except OSError as error:
        name = "standard input" if is_standard_input else f"--file: {file}"
        raise OptionError(f"{name}: {error.strerror}") from None
