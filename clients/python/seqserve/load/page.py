"""The result of a load as a page of HTML, with charts: SVG in the colours of the page."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from seqserve.load import Answer, percentile
from seqserve.load.rate_search import Probe
from seqserve.load.result import TIMES, times_of
from seqserve.pictures import SERIES, style_sheet

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
    """The places of values on an axis."""

    label: str
    low: float
    high: float
    is_log: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    """Values and their names; if empty, the range determines them."""

    def share(self, value: float) -> float:
        """Returns the place of a value, from 0 at the low end to 1; values beyond are at an end."""
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
    """Yields the lines of an SVG, which takes its colours from the page around it."""

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
    width = (high - low) / _TICKS or 1.0
    power = 10.0 ** math.floor(math.log10(width))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= width)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    values = (factor * 10.0**power for power in range(first, last + 1) for factor in factors)
    return [value for value in values if low <= value <= high]


_MAX_POINTS = 3000
_COLUMNS = 60
_LEAST_A_COLUMN = 20
# Percentile p is at -log10(1 - p): each step to the right is ten times as rare.
_PERCENTILES = ((0.0, "0"), (0.301, "p50"), (1.0, "p90"), (2.0, "p99"), (3.0, "p99.9"))
_PAGE = Template(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"))


def page(
    result: Mapping[str, Any],
    answers: Sequence[Answer],
    report: Sequence[str],
    probes: Sequence[Probe] = (),
) -> str:
    """Draws the page."""
    settings = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in result.items()
        if key in ("backend", "target", "model_id", "request_rate", "max_concurrency", "date")
        and value is not None
    )
    charts = [_over_time(result, answers), _percentiles(result, answers), _rates(result, answers)]
    if probes:
        charts.insert(0, _search(result, probes))
    figures = "\n".join(f"<figure>{svg}</figure>" for svg in map("\n".join, charts))
    return _PAGE.substitute(
        target=escape(str(result["target"])),
        colours=style_sheet(),
        settings=escape(settings),
        report=escape("\n".join(report)),
        figures=figures,
    )


def _over_time(result: Mapping[str, Any], answers: Sequence[Answer]) -> Iterator[str]:
    step = math.ceil(len(answers) / _MAX_POINTS)
    served = [answer for answer in answers[::step] if not answer.error]
    series = [("whole answer", [(answer.due_s, 1e3 * answer.total_s) for answer in served])]
    if result["stream"]:
        first = [(answer.due_s, 1e3 * answer.first_s) for answer in served]
        series.append(("first token", first))
    return chart(
        "Time from when a request was due",
        Axis("seconds from the beginning", 0.0, result["duration"]),
        _log_axis("ms", [value for _, points in series for _, value in points]),
        [Series(name=name, points=points, is_line=False) for name, points in series],
    )


def _percentiles(result: Mapping[str, Any], answers: Sequence[Answer]) -> Iterator[str]:
    series = []
    times = times_of(answers, streamed=result["stream"])
    for name in ("e2el", "ttft", "itl"):
        if values := sorted(times.get(name, [])):
            series.append(Series(name=TIMES[name], points=_curve(values)))
    ends = [value for each in series for _, value in each.points]
    return chart(
        "How long the slowest take",
        Axis("share of the answers that took no longer", 0.0, 3.0, ticks=_PERCENTILES),
        _log_axis("ms", ends),
        series,
    )


def _curve(values: Sequence[float]) -> list[tuple[float, float]]:
    last = min(3.0, math.log10(len(values))) if len(values) > 1 else 0.0
    rarities = [last * number / _COLUMNS for number in range(_COLUMNS + 1)]
    return [(rarity, percentile(values, 1 - 10**-rarity)) for rarity in rarities]


def _rates(result: Mapping[str, Any], answers: Sequence[Answer]) -> Iterator[str]:
    columns = max(1, min(_COLUMNS, len(answers) // _LEAST_A_COLUMN))
    width_s = result["duration"] / columns
    # The last one has what came at the very end.
    counts = {name: [0] * (columns + 1) for name in ("due", "answered", "failed")}
    for answer in answers:
        counts["due"][int(answer.due_s / width_s)] += 1
        if answer.error:
            counts["failed"][int(answer.due_s / width_s)] += 1
        else:
            counts["answered"][int((answer.due_s + answer.total_s) / width_s)] += 1
    if not result["failed"]:
        del counts["failed"]
    highest = max(map(max, counts.values())) / width_s
    return chart(
        "Requests a second",
        Axis("seconds from the beginning", 0.0, result["duration"]),
        Axis("1/s", 0.0, highest),
        [
            Series(
                name=name,
                points=[
                    ((at + 0.5) * width_s, count / width_s)
                    for at, count in enumerate(numbers[:columns])
                ],
            )
            for name, numbers in counts.items()
        ],
    )


def _search(result: Mapping[str, Any], probes: Sequence[Probe]) -> Iterator[str]:
    ordered = sorted(probes, key=lambda probe: probe.rate_per_s)
    # A probe in which too many failed is at the upper end.
    top = max([result["limit_p99_ms"], *(p.p99_ms for p in ordered if math.isfinite(p.p99_ms))])
    points = [(probe.rate_per_s, min(probe.p99_ms, 2 * top)) for probe in ordered]
    return chart(
        f"p99 by rate, and the limit of {result['limit_p99_ms']:g} ms",
        _log_axis("requests a second", [rate for rate, _ in points]),
        _log_axis("ms", [result["limit_p99_ms"], *(value for _, value in points)]),
        [Series(name="p99", points=points)],
        limit=result["limit_p99_ms"],
    )


def _log_axis(label: str, values: Sequence[float]) -> Axis:
    seen = [value for value in values if value > 0] or [1.0]
    return Axis(label, 0.9 * min(seen), 1.1 * max(seen), is_log=True)
