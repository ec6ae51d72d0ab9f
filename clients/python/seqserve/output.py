"""Lines that commands print: aligned columns, and JSON."""

import json
import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

# Line breaks and escapes, and what turns the direction of text around: a cell that has them could
# show what it does not say.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Returns one line for each row of cells; ``right`` are the columns to align to the right.

    Control characters are shown as escapes.
    """
    rows = [[_CONTROL.sub(lambda each: ascii(each[0])[1:-1], cell) for cell in row] for row in rows]
    widths = [max(map(width_of, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            padded(cell, width, to_the_right=column in right)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def padded(cell: str, width: int, *, to_the_right: bool = False) -> str:
    """Fills a cell with spaces, after it or before it."""
    spaces = " " * (width - width_of(cell))
    return spaces + cell if to_the_right else cell + spaces


def width_of(text: str) -> int:
    """Returns the width of a text in a terminal: an ideograph takes two columns, an accent none."""
    return sum(
        0
        if unicodedata.category(character) in ("Mn", "Me", "Cf")
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def json_line(facts: Mapping[str, Any]) -> str:
    """Writes one line; an enum member becomes its value, NaN and infinity become null."""
    line = json.dumps(_plain(facts), ensure_ascii=False, allow_nan=False)
    # Half a character, also of a path that is not UTF-8, is written by its code.
    return line.encode(errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, Enum):
        return value.value
    # JSON has no NaN, and no infinity, which is the score of a suppressed token.
    return None if isinstance(value, float) and not math.isfinite(value) else value
