"""Charts as SVG: lines and points over two axes, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from seqserve.palette import SERIES

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 300, 64, 24, 40, 44
_TICKS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points with one colour."""

    name: str
    points: Sequence[tuple[float, float]]
    is_line: bool = True
    """Whether a line joins the points, in their order."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values stand on an axis."""

    label: str
    low: float
    high: float
    is_log: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    """Values and their names; chosen by the range if there are none."""

    def share(self, value: float) -> float:
        """Returns the place of a value, from 0 at the low end to 1; values beyond stand there."""
        low, high, value = (self._scaled(each) for each in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low or 1.0)))

    def marks(self) -> Sequence[tuple[float, str]]:
        """Returns values and their names."""
        if self.ticks:
            return self.ticks
        values = _powers(self.low, self.high) if self.is_log else _rounded(self.low, self.high)
        return [(value, f"{value:,g}") for value in values]

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-9)) if self.is_log else value


def chart(
    title: str, x: Axis, y: Axis, series: Sequence[Series], limit: float | None = None
) -> Iterator[str]:
    """Yields the lines of an SVG, which takes its colours from the page that it stands in.

    Args:
        title: What it shows.
        x: The axis below.
        y: The axis at the left.
        series: In the order of their colours.
        limit: A value of ``y`` to draw a line at.
    """

    def across(value: float) -> float:
        return _LEFT + x.share(value) * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _HEIGHT - _BOTTOM - y.share(value) * (_HEIGHT - _TOP - _BOTTOM)

    yield (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"'
        ' font-size="12" fill="var(--ink)">'
    )
    yield f'<text x="{_LEFT}" y="18" font-size="14" font-weight="600">{escape(title)}</text>'
    yield '<g stroke="var(--line)">'
    for value, _ in y.marks():
        yield f'<path d="M{_LEFT} {down(value):.1f}H{_WIDTH - _RIGHT}"/>'
    yield f'<path d="M{_LEFT} {_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/></g><g fill="var(--faint)">'
    for value, name in y.marks():
        at = f'x="{_LEFT - 6}" y="{down(value) + 4:.1f}"'
        yield f'<text {at} text-anchor="end">{escape(name)}</text>'
    for value, name in x.marks():
        at = f'x="{across(value):.1f}" y="{_HEIGHT - _BOTTOM + 16}"'
        yield f'<text {at} text-anchor="middle">{escape(name)}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x.label)}</text>'
    yield f'<text x="{_LEFT - 6}" y="{_TOP - 8}" text-anchor="end">{escape(y.label)}</text></g>'
    for each, colour in zip(series, SERIES, strict=False):
        places = [(across(point[0]), down(point[1])) for point in each.points]
        if each.is_line and places:
            path = "L".join(f"{place_x:.1f} {place_y:.1f}" for place_x, place_y in places)
            yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        elif places:
            # Round ends of lines without a length: one element for all points.
            path = "".join(f"M{place_x:.1f} {place_y:.1f}h0" for place_x, place_y in places)
            yield (
                f'<path d="{path}" stroke="{colour}" stroke-width="4" stroke-linecap="round"'
                ' stroke-opacity=".55"/>'
            )
    if limit is not None:
        yield (
            f'<path d="M{_LEFT} {down(limit):.1f}H{_WIDTH - _RIGHT}" stroke="var(--warm)"'
            ' stroke-dasharray="6 4"/>'
        )
    yield from _legend(series)
    yield "</svg>"


def _legend(series: Sequence[Series]) -> Iterator[str]:
    at = _WIDTH - _RIGHT
    for each, colour in reversed([*zip(series, SERIES, strict=False)]):
        yield f'<text x="{at}" y="18" text-anchor="end" fill="{colour}">{escape(each.name)}</text>'
        at -= 7 * len(each.name) + 16


def _rounded(low: float, high: float) -> list[float]:
    """Returns about six values at equal steps of 1, 2 or 5 times a power of ten."""
    width = (high - low) / _TICKS or 1.0
    power = 10.0 ** math.floor(math.log10(width))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= width)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Returns the 1, 2 and 5 of each power of ten within a range; few of a wide one."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    values = (factor * 10.0**power for power in range(first, last + 1) for factor in factors)
    return [value for value in values if low <= value <= high]
