"""Draws a report: speed by rows in flight, and latency by rate."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 9.0, 3.6
_OURS = "seqserve"


def draw(report: dict[str, Any], folder: Path) -> list[Path]:
    """Draws all pictures into ``folder``; gives the files, SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    speed = Figure((_WIDTH, _HEIGHT), layout="constrained")
    titles = {"sentences": "shipped model, real sentences", "marian": "Marian base shape"}
    for axes, (name, title) in zip(speed.subplots(1, 2), titles.items(), strict=True):
        _speeds(axes, report[name])
        axes.set_title(title)
    waits = Figure((_WIDTH, _HEIGHT), layout="constrained")
    for axes, quantile in zip(waits.subplots(1, 2), ("p50", "p99"), strict=True):
        _waits(axes, report["online"], quantile)
    files = [folder / "offline.svg", folder / "online.svg"]
    for figure, file in zip((speed, waits), files, strict=True):
        figure.savefig(file, metadata={"Date": None})
    return files


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
    axes.axhline(report["slo_ms"], color="grey", linestyle=":", linewidth=1)
    axes.set_yscale("log")
    axes.set_xlabel("requests a second")
    axes.set_ylabel(f"{quantile} of an answer, ms")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


def _width(name: str) -> float:
    return 2.5 if name.startswith(_OURS) else 1.2
