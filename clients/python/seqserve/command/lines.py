"""Lines of a file or of standard input, each of which is a source."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from seqserve.errors import OptionError

STANDARD_INPUT = Path("-")


def lines_of(file: Path) -> Iterator[str]:
    """Yields the lines of a file without their ends; bytes that are not UTF-8 become surrogates.

    No message can carry a surrogate, so only that line is refused.
    """
    is_standard_input = file == STANDARD_INPUT
    if is_standard_input and sys.stdin.isatty():
        print("seqserve: reading lines, answering each; end with Ctrl-D", file=sys.stderr)
    try:
        # Not sys.stdin: a thread that waits for it would block the end of the program.
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
