"""Pictures of a report of ``make bench``: speed by rows in flight, and latency by rate."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqserve.errors import OptionError
from seqserve.pictures import GREY
from seqserve_plot.picture import grid

_SPEEDS = {"sentences": "shipped model, real sentences", "marian": "Marian base shape"}
_WAITS = "online"
_QUANTILES = ("p50", "p99")
_OURS = "seqserve"


def read_report(path: Path) -> dict[str, Any]:
    """Reads a report.

    Raises:
        OptionError: It cannot be read, or is no report.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: cannot be read: {error}") from None
    if not isinstance(report, dict) or not report.keys() & {*_SPEEDS, _WAITS}:
        raise OptionError(
            f"{path}: is no report with one of the parts {', '.join((*_SPEEDS, _WAITS))};"
            " `make bench` writes one to bench/report.json"
        )
    return report


def draw(report: dict[str, Any]) -> Figure:
    """Draws the parts that the report has, each in a row or half of one."""
    speeds = [name for name in _SPEEDS if name in report]
    figure, axes = grid(bool(speeds) + (_WAITS in report), 2)
    for panel, name in zip(axes[0], speeds, strict=False):
        _speeds(panel, report[name])
        panel.set_title(_SPEEDS[name])
    if _WAITS in report:
        for panel, quantile in zip(axes[-1], _QUANTILES, strict=True):
            _waits(panel, report[_WAITS], quantile)
    for panel in (panel for row in axes for panel in row if not panel.lines):
        panel.set_axis_off()
    return figure


def _speeds(axes: Axes, tables: list[dict[str, Any]]) -> None:
    """One line for each engine: tokens a second by rows in flight."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for table in tables:
        for peer in table["peers"]:
            # Layouts differ from row to row, each the fastest there.
            name = re.sub(r" \d+x\d+$", "", peer["name"])
            lines.setdefault(name, []).append((table["rows"], peer["tokens_per_s"]))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name, linewidth=_width(name))
    axes.set_xscale("log", base=2)
    rows = [table["rows"] for table in tables]
    axes.set_xticks(rows, [str(count) for count in rows])
    axes.set_yscale("log")
    axes.set_xlabel("rows in flight on each core")
    axes.set_ylabel("tokens a second")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


def _waits(axes: Axes, report: dict[str, Any], quantile: str) -> None:
    """One line for each server: time of an answer by rate of arrivals."""
    for peer in report["peers"]:
        points = [
            (point["rate_per_s"], point["total_ms"][quantile])
            for point in peer["points"]
            if point["total_ms"][quantile] is not None
        ]
        if points:
            name = peer["name"]
            axes.plot(*zip(*points, strict=True), marker="o", label=name, linewidth=_width(name))
    axes.axhline(report["slo_ms"], color=GREY, linestyle=":", linewidth=1)
    axes.set_yscale("log")
    axes.set_xlabel("requests a second")
    axes.set_ylabel(f"{quantile} of an answer, ms")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


def _width(name: str) -> float:
    return 2.5 if name.startswith(_OURS) else 1.2
