"""A matrix of weights from 0 to 1 as a picture, its rows and columns named: SVG, for a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from seqserve.command.columns import width_of

# In pixels; a letter of the font is about so wide.
_CELL_WIDTH, _CELL_HEIGHT = 34, 24
_LETTER = 8.5
_GAP = 8
_TITLE_HEIGHT = 34
# In degrees: names of columns rise, so that long ones stand beside each other.
_SLOPE = 40
_INK, _FILL, _LINE = "#1b2430", "#3b6fd4", "#d8e0ec"


def svg_map(
    weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], title: str
) -> list[str]:
    """Draws weights: the darker a cell, the larger.

    Args:
        weights: One row a name of ``rows``, one weight a name of ``columns``.
        rows: Names at the left.
        columns: Names at the top.
        title: What stands above.

    Returns:
        The lines of the file.
    """
    left = _longest(rows) + 2 * _GAP
    slope = math.radians(_SLOPE)
    top = _TITLE_HEIGHT + math.sin(slope) * _longest(columns) + 2 * _GAP
    # The name of the last column leans over the edge.
    right = left + _CELL_WIDTH * len(columns) + math.cos(slope) * _longest(columns[-1:])
    width = max(right, _longest([title]) + 2 * _GAP)
    height = top + _CELL_HEIGHT * len(rows) + _GAP
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="ui-monospace, monospace"'
        f' font-size="14" fill="{_INK}" role="img" aria-label="{escape(title)}">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{_GAP}" y="22">{escape(title)}</text>',
        *_names(rows, columns, left, top),
        *_cells(weights, left, top),
        "</svg>",
    ]


def _longest(names: Sequence[str]) -> float:
    return _LETTER * max(map(width_of, names), default=0)


def _names(rows: Sequence[str], columns: Sequence[str], left: float, top: float) -> Iterator[str]:
    for number, name in enumerate(columns):
        x, y = left + _CELL_WIDTH * (number + 0.5), top - _GAP
        place = f"translate({x:.0f} {y:.0f}) rotate(-{_SLOPE})"
        yield f'<text transform="{place}">{escape(name)}</text>'
    for number, name in enumerate(rows):
        y = top + _CELL_HEIGHT * (number + 0.7)
        yield f'<text x="{left - _GAP:.0f}" y="{y:.0f}" text-anchor="end">{escape(name)}</text>'


def _cells(weights: Sequence[Sequence[float]], left: float, top: float) -> Iterator[str]:
    yield f'<g fill="{_FILL}" stroke="{_LINE}">'
    for row, line in enumerate(weights):
        for column, weight in enumerate(line):
            x, y = left + _CELL_WIDTH * column, top + _CELL_HEIGHT * row
            yield (
                f'<rect x="{x:.0f}" y="{y:.0f}" width="{_CELL_WIDTH}" height="{_CELL_HEIGHT}"'
                f' fill-opacity="{weight:.2f}"><title>{weight:.2f}</title></rect>'
            )
    yield "</g>"
