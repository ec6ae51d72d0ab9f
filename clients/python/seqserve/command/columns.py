"""Rows of cells, written so that the columns stand below each other in a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Gives a line for each row.

    Args:
        rows: Cells; as many in every row.
        right: Numbers of the columns whose cells end, not begin, below each other.
    """
    widths = [max(map(width_of, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            padded(cell, width, to_the_right=column in right)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def padded(cell: str, width: int, *, to_the_right: bool = False) -> str:
    """Fills a cell with spaces, behind it or before it."""
    spaces = " " * (width - width_of(cell))
    return spaces + cell if to_the_right else cell + spaces


def width_of(text: str) -> int:
    """Gives the columns of a terminal that a text takes: an ideograph two, an accent none."""
    return sum(_width_of(character) for character in text)


def _width_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
