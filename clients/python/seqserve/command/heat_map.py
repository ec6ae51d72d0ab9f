"""A matrix of weights from 0 to 1, drawn in a terminal, its rows and columns named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from seqserve.command.columns import padded, width_of

_SHADES = " ░▒▓█"
# Of the 256 colours of terminals: black, violet, red, orange, yellow.
_COLOURS = (16, 17, 53, 90, 126, 162, 198, 203, 209, 215, 221, 229)


class Style(Enum):
    """What stands for a weight."""

    COLOURS = "colours"
    """A colour, from black to yellow."""
    SHADES = "shades"
    """A block, from a blank to a full one."""
    NUMBERS = "numbers"
    """The number itself."""


_NARROWEST = {Style.COLOURS: 2, Style.SHADES: 2, Style.NUMBERS: 4}


def heat_map(
    weights: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    style: Style,
    width: int | None = None,
) -> list[str]:
    """Draws weights.

    Args:
        weights: One row a name of ``rows``, one weight a name of ``columns``.
        rows: Names at the left.
        columns: Names at the top.
        style: What stands for a weight.
        width: Columns of the terminal: what does not fit is drawn below; None for no limit.

    Returns:
        The lines; the last one is a legend, unless numbers speak for themselves.
    """
    edge = max(map(width_of, rows), default=0)
    widths = [max(width_of(name), _NARROWEST[style]) for name in columns]
    lines: list[str] = []
    for band in _bands(widths, None if width is None else width - edge):
        if lines:
            lines.append("")
        names = (padded(columns[column], widths[column], to_the_right=True) for column in band)
        lines.append(" ".join([" " * edge, *names]))
        for name, row in zip(rows, weights, strict=True):
            cells = (_cell(row[column], widths[column], style) for column in band)
            lines.append(" ".join([padded(name, edge), *cells]).rstrip())
    return lines if style is Style.NUMBERS else [*lines, "", _legend(style)]


def _bands(widths: Sequence[int], room: int | None) -> Iterator[range]:
    """Gives which columns stand beside each other; a space goes before each."""
    start, used = 0, 0
    for column, width in enumerate(widths):
        used += 1 + width
        if room is not None and used > room and column > start:
            yield range(start, column)
            start, used = column, 1 + width
    yield range(start, len(widths))


def _legend(style: Style) -> str:
    steps = len(_SHADES if style is Style.SHADES else _COLOURS) - 1
    return f"0 {''.join(_cell(step / steps, 2, style) for step in range(steps + 1))} 1"


def _cell(weight: float, width: int, style: Style) -> str:
    if style is Style.NUMBERS:
        return f"{weight:.2f}".rjust(width)
    if style is Style.SHADES:
        return _SHADES[round(weight * (len(_SHADES) - 1))] * width
    return f"\x1b[48;5;{_COLOURS[round(weight * (len(_COLOURS) - 1))]}m{' ' * width}\x1b[0m"
