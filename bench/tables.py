"""Tables of results: Markdown that reads well in a terminal, and the page that has them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Spread = Mapping[str, float]
"""``median``, ``low`` and ``high``."""


class Table(NamedTuple):
    """Rows of cells under a head, and a sentence below."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @classmethod
    def of(
        cls, columns: Mapping[str, str], records: Iterable[Mapping[str, Any]], note: str = ""
    ) -> Table:
        """Lays out records, a row each; ``columns`` has a format string for each head."""
        rows = [[cell.format_map(record) for cell in columns.values()] for record in records]
        return cls(list(columns), rows, note)

    def __str__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(2, *map(len, column)) for column in zip(*lines, strict=True)]
        text = [_line(line, widths) for line in lines]
        text.insert(
            1, f"| {'-' * widths[0]} |" + "".join(f" {'-' * (w - 1)}: |" for w in widths[1:])
        )
        return "\n".join([*text, *(["", self.note] if self.note else [])]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return f"| {first[0]:{first[1]}} |" + "".join(f" {cell:>{width}} |" for cell, width in rest)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the median, the lowest and the highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def spread_of_ratios(ours: Iterable[float], theirs: Iterable[float]) -> dict[str, float]:
    """Returns the spread of the ratios within the rounds."""
    return spread([our / their for our, their in zip(ours, theirs, strict=True)])


def shown(values: Spread, digits: int = 2) -> str:
    """Writes a spread, as ``1.20 (1.12-1.21)``."""
    median, low, high = (f"{values[name]:,.{digits}f}" for name in ("median", "low", "high"))
    return f"{median} ({low}-{high})"


def document(tables: Iterable[Table], signature: str) -> str:
    """Writes tables and the signature that belongs under them."""
    return "\n".join([*map(str, tables), f"`{signature}`\n"])


def parts_of(page: str) -> set[str]:
    """Returns the parts whose tables a page has."""
    return {found["part"] for found in _PLACE.finditer(page)}


def fill_page(page: str, parts: Mapping[str, tuple[Sequence[Table], str]]) -> str:
    """Replaces the tables between the markers of a page, and the signatures under them.

    ``<!-- bench gpu 1 5 -->`` takes the first and the fifth table of a part, a marker without
    numbers all of them; ``<!-- end -->`` ends them.
    """

    def filled(place: re.Match[str]) -> str:
        if place["part"] not in parts:
            return place[0]
        tables, signature = parts[place["part"]]
        chosen = [tables[int(number) - 1] for number in place["numbers"].split()]
        return f"{place['begin']}\n{document(chosen or tables, signature)}<!-- end -->"

    return _PLACE.sub(filled, page)


_PLACE = re.compile(
    r"(?P<begin><!-- bench (?P<part>[\w-]+)(?P<numbers>[ \d]*) -->\n).*?<!-- end -->", re.DOTALL
)
